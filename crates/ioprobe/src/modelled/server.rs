//! The process that is a modelled disk: holds the image in its memory and answers the kernel when the model says so.
//!
//! It is a process of its own, outside the probe's namespaces, because whoever waits for the disk must never be the one who keeps
//! it: when the probe dies, this dies too, the kernel ends the connection, and what waits gets an error.

use std::collections::HashMap;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

use libc::c_int;
use serde_json::{json, Value};

use super::fuse::{self, Asked};
use super::{Due, Kind, Model, Request};
use crate::clock::monotonic_ns;
use crate::error::{last_errno, Error, Result};
use crate::protocol;

/// The end of a wait that is spent looking at the clock, because waking up takes its time.
const LOOK_NS: u64 = 15_000;
/// What it is told, in one byte each: to give its account, to answer at once, to answer when the model says.
pub const ACCOUNT: u8 = b'a';
pub const AT_ONCE: u8 = b'o';
pub const AS_MODELLED: u8 = b'm';

/// Serves until the connection or the probe's end of `control` is closed. Never returns.
pub fn run(request: &protocol::ModelledImage, fuse: OwnedFd, control: OwnedFd) -> ! {
    let code = match Server::new(request, fuse, control).and_then(Server::serve) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("ioprobe: modelled disk: {error}");
            1
        }
    };
    // SAFETY: runs nothing of ours.
    unsafe { libc::_exit(code) }
}

struct Server<'a> {
    given: &'a protocol::ModelledImage,
    fuse: OwnedFd,
    control: OwnedFd,
    file: fuse::File,
    image: Memory,
    model: Model,
    /// Requests that the model has, by number: what is read, or how much was written.
    asked: HashMap<u64, (Kind, u64, u64)>,
    /// The model is put aside: whatever is asked is answered as soon as it has come.
    at_once: bool,
    began: u64,
}

impl<'a> Server<'a> {
    fn new(request: &'a protocol::ModelledImage, fuse: OwnedFd, control: OwnedFd) -> Result<Self> {
        let made = Model::of(request).and_then(|model| Ok((model, Memory::locked(request.size)?)));
        let (model, image) = match made {
            Ok(made) => made,
            Err(error) => {
                tell(&control, &json!({"error": error.report()}))?;
                return Err(error);
            }
        };
        punctual();
        // Told apart from other modelled disks, and from files, by number.
        let inode = (1 << 40) | u64::from(std::process::id()) << 8 | (monotonic_ns() >> 20) & 0xff;
        tell(
            &control,
            &json!({"pid": std::process::id(), "inode": inode}),
        )?;
        Ok(Server {
            given: request,
            fuse,
            control,
            file: fuse::File {
                size: request.size,
                inode,
            },
            image,
            model,
            asked: HashMap::new(),
            at_once: false,
            began: monotonic_ns(),
        })
    }

    fn now(&self) -> u64 {
        monotonic_ns() - self.began
    }

    fn serve(mut self) -> Result<()> {
        let mut buffer = vec![0; fuse::BUFFER];
        let mut due = Vec::new();
        loop {
            if !self.take_requests(&mut buffer)? {
                return Ok(());
            }
            due.clear();
            let now = self.now();
            self.model.due(now, &mut due);
            for answer in &due {
                self.answer(answer)?;
            }
            if due.is_empty() && !self.wait()? {
                return Ok(());
            }
        }
    }

    /// Waits for a request or until something is due; false where the probe has gone.
    fn wait(&mut self) -> Result<bool> {
        let left = self.model.next_at().map(|at| at.saturating_sub(self.now()));
        if let Some(0..=LOOK_NS) = left {
            std::hint::spin_loop();
            return Ok(true);
        }
        let time = left.map(|ns| libc::timespec {
            tv_sec: ((ns - LOOK_NS) / 1_000_000_000) as libc::time_t,
            tv_nsec: ((ns - LOOK_NS) % 1_000_000_000) as libc::c_long,
        });
        let mut polled = [poll_of(&self.fuse), poll_of(&self.control)];
        let time = time
            .as_ref()
            .map_or(std::ptr::null(), |time| time as *const _);
        // SAFETY: two structures, and a time or none, all ours.
        let n = unsafe { libc::ppoll(polled.as_mut_ptr(), 2, time, std::ptr::null()) };
        if n == -1 && last_errno() != libc::EINTR {
            return Err(Error::last_os("wait for requests"));
        }
        if n > 0 && polled[1].revents != 0 {
            return self.obey();
        }
        Ok(true)
    }

    /// Does what the probe has told it; false where the probe has gone.
    fn obey(&mut self) -> Result<bool> {
        let mut question = [0_u8; 16];
        let fd = self.control.as_raw_fd();
        // SAFETY: the buffer is ours.
        let n = unsafe {
            libc::recv(
                fd,
                question.as_mut_ptr().cast(),
                question.len(),
                libc::MSG_DONTWAIT,
            )
        };
        match n {
            -1 if matches!(last_errno(), libc::EAGAIN | libc::EINTR) => Ok(true),
            -1 | 0 => Ok(false),
            _ => {
                match question[0] {
                    AT_ONCE => self.put_model_aside()?,
                    AS_MODELLED => self.at_once = false,
                    _ => {}
                }
                tell(&self.control, &json!(self.model.account()))?;
                Ok(true)
            }
        }
    }

    /// What waits is answered, and what the model remembers is forgotten: it comes back as that of a disk at rest.
    fn put_model_aside(&mut self) -> Result<()> {
        self.at_once = true;
        let account = self.model.account();
        self.model = Model::of(self.given)?;
        self.model.go_on_with(account);
        for (tag, (kind, offset, length)) in std::mem::take(&mut self.asked) {
            self.reply_to(tag, kind, offset, length)?;
        }
        Ok(())
    }

    /// Takes what has come; false where the file system has gone.
    fn take_requests(&mut self, buffer: &mut [u8]) -> Result<bool> {
        loop {
            let fd = self.fuse.as_raw_fd();
            // SAFETY: the buffer is ours.
            let n = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
            if n == -1 {
                match last_errno() {
                    libc::EAGAIN => return Ok(true),
                    // Interrupted, or the request was, before it was read.
                    libc::EINTR | libc::ENOENT => continue,
                    libc::ENODEV => return Ok(false),
                    errno => return Err(Error::errno("read a request", errno)),
                }
            }
            let arrival = self.now();
            let (unique, asked) = match fuse::parse(&buffer[..n as usize], &self.file) {
                Some(request) => request,
                None => return Err(Error::verify("read a request: found none")),
            };
            let (kind, offset, length) = match asked {
                Asked::Nothing => continue,
                Asked::End => return Ok(false),
                Asked::Now(Ok(body)) => {
                    reply(fd, &fuse::head(unique, 0, body.len()), &body)?;
                    continue;
                }
                Asked::Now(Err(errno)) => {
                    reply(fd, &fuse::head(unique, errno, 0), &[])?;
                    continue;
                }
                Asked::Read { offset, length } => (Kind::Read, offset, length),
                Asked::Write { offset, data } => {
                    self.image
                        .bytes_mut(offset, data.len() as u64)
                        .copy_from_slice(data);
                    (Kind::Write, offset, data.len() as u64)
                }
                Asked::Flush => (Kind::Flush, 0, 0),
                Asked::Zero { .. } if !self.model.trims() => {
                    reply(fd, &fuse::head(unique, libc::EOPNOTSUPP, 0), &[])?;
                    continue;
                }
                Asked::Zero { offset, length } => {
                    self.image.bytes_mut(offset, length).fill(0);
                    (Kind::Trim, offset, length)
                }
            };
            if self.at_once {
                self.reply_to(unique, kind, offset, length)?;
                continue;
            }
            self.asked.insert(unique, (kind, offset, length));
            self.model.submit(Request {
                tag: unique,
                kind,
                offset,
                length,
                arrival,
            });
        }
    }

    fn answer(&mut self, due: &Due) -> Result<()> {
        let (kind, offset, length) = match self.asked.remove(&due.tag) {
            Some(asked) => asked,
            None => return Err(Error::verify("answer a request: it was not asked")),
        };
        self.reply_to(due.tag, kind, offset, length)?;
        let late = self.now().saturating_sub(due.at);
        self.model.late(late);
        Ok(())
    }

    fn reply_to(&self, tag: u64, kind: Kind, offset: u64, length: u64) -> Result<()> {
        let fd = self.fuse.as_raw_fd();
        match kind {
            Kind::Read => {
                let bytes = self.image.bytes(offset, length);
                reply(fd, &fuse::head(tag, 0, bytes.len()), bytes)
            }
            Kind::Write => {
                let body = fuse::written(length as u32);
                reply(fd, &fuse::head(tag, 0, body.len()), &body)
            }
            Kind::Flush | Kind::Trim => reply(fd, &fuse::head(tag, 0, 0), &[]),
        }
    }
}

/// The image: anonymous, there from the start and never swapped out, so that no answer waits for memory.
struct Memory {
    start: *mut u8,
    size: usize,
}

impl Memory {
    fn locked(size: u64) -> Result<Self> {
        let doing = || format!("hold an image of {size} bytes in memory");
        let bytes = usize::try_from(size).map_err(|_| Error::bad(doing()))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping; what is mapped is there or it failed.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0);
            if start == libc::MAP_FAILED || libc::mlock(start, bytes) == -1 {
                return Err(Error::last_os(doing()));
            }
            // The rest of this process too, as far as it is allowed.
            libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE);
            Ok(Memory {
                start: start.cast(),
                size: bytes,
            })
        }
    }

    fn bytes(&self, offset: u64, length: u64) -> &[u8] {
        let (offset, length) = self.checked(offset, length);
        // SAFETY: within the mapping, which lives as long as the process.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), length) }
    }

    fn bytes_mut(&mut self, offset: u64, length: u64) -> &mut [u8] {
        let (offset, length) = self.checked(offset, length);
        // SAFETY: as above, and nobody else has it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), length) }
    }

    fn checked(&self, offset: u64, length: u64) -> (usize, usize) {
        let (offset, length) = (offset as usize, length as usize);
        assert!(offset <= self.size && length <= self.size - offset);
        (offset, length)
    }
}

/// A disk does not wait for a processor: as far as it is allowed, this process goes before others, wakes when it said, and is not
/// made to wait for memory that only its own answers would free.
fn punctual() {
    const PR_SET_IO_FLUSHER: c_int = 57;
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: one structure, ours; what is refused leaves things as they are.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &first);
    }
}

/// Hands an answer to the kernel; a request that was given up meanwhile has none to take it.
fn reply(fd: RawFd, head: &[u8], body: &[u8]) -> Result<()> {
    let part = |bytes: &[u8]| libc::iovec {
        iov_base: bytes.as_ptr() as *mut _,
        iov_len: bytes.len(),
    };
    let parts = [part(head), part(body)];
    let n = if body.is_empty() { 1 } else { 2 };
    // SAFETY: the parts are valid for their lengths, and only read.
    match unsafe { libc::writev(fd, parts.as_ptr(), n) } {
        -1 if !matches!(last_errno(), libc::ENOENT | libc::ENODEV) => {
            Err(Error::last_os("answer a request"))
        }
        _ => Ok(()),
    }
}

fn tell(control: &OwnedFd, what: &Value) -> Result<()> {
    let text = what.to_string();
    // SAFETY: the text is valid for its length.
    let n = unsafe {
        libc::send(
            control.as_raw_fd(),
            text.as_ptr().cast(),
            text.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    match n {
        -1 => Err(Error::last_os("tell the probe")),
        _ => Ok(()),
    }
}

fn poll_of(fd: &OwnedFd) -> libc::pollfd {
    libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    }
}
