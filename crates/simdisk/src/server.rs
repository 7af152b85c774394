//! The process that simulates a disk: holds the image in memory and answers the kernel when the
//! model says so.
//!
//! It is a separate process, outside the probe's namespaces, because a process waiting for the disk
//! must never be the one that serves it. When the probe dies, this dies too, the kernel aborts the
//! connection, and whatever waits gets an error.

use std::collections::HashMap;
use std::fs::File;
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use memmap2::{MmapMut, MmapOptions, UncheckedAdvice};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::{read, writev, Errno};
use rustix::mm::{mlockall, MlockAllFlags};
use rustix::net::{recv, send, RecvFlags, SendFlags};
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::set_current_timer_slack;
use rustix::time::{clock_gettime, ClockId, Timespec};
use serde::Serialize;

use super::control::{Answer, Greeting, AS_MODELLED, AT_ONCE, FORGET, MARK};
use super::fuse::{self, FuseRequest};
use super::log::{Log, Marks, MARK_MOST};
use super::{Description, Due, Error, Kind, Model, Request, Result};

/// The end of a wait is spent polling the clock, because waking up takes time.
const LOOK_NS: u64 = 15_000;

/// Serve until the connection or the probe's end of `control` is closed. Never returns.
pub fn run(request: &Description, fuse: OwnedFd, control: OwnedFd) -> ! {
    let code = match Server::new(request, fuse, control).and_then(Server::serve) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("ioprobe: simulated disk: {error}");
            1
        }
    };
    std::process::exit(code)
}

struct Server<'a> {
    description: &'a Description,
    fuse: OwnedFd,
    control: OwnedFd,
    file: fuse::File,
    /// Allocated and locked from the start, so that no answer waits for memory; or a private map of
    /// the image below.
    image: MmapMut,
    model: Model,
    log: Option<Log>,
    marks: Option<Marks>,
    /// Pending requests of the model, by id: kind, offset and length.
    pending: HashMap<u64, (Kind, u64, u64)>,
    /// Data of pending writes, if they are logged: they reach image and log when they complete.
    held: HashMap<u64, Vec<u8>>,
    /// Bypass the model: answer each request as soon as it arrives.
    at_once: bool,
    began: u64,
}

impl<'a> Server<'a> {
    fn new(request: &'a Description, fuse: OwnedFd, control: OwnedFd) -> Result<Self> {
        let made = Model::of(request).and_then(|model| {
            let image = match &request.over {
                Some(path) => image_over(path, request.size)?,
                None => locked(request.size)?,
            };
            let log = request.log.as_deref().map(Log::create).transpose()?;
            let marks = request.marks.as_deref().map(Marks::listen).transpose()?;
            Ok((model, image, log, marks))
        });
        let (model, image, log, marks) = match made {
            Ok(made) => made,
            Err(error) => {
                let (message, errno) = match &error {
                    Error::Os { doing, errno } => (doing.clone(), Some(*errno)),
                    other => (other.to_string(), None),
                };
                tell(&control, &Greeting::Refused { message, errno })?;
                return Err(error);
            }
        };
        punctual();
        // An inode number that distinguishes it from other simulated disks and from files.
        let inode = (1 << 40) | u64::from(std::process::id()) << 8 | (monotonic_ns() >> 20) & 0xff;
        let pid = std::process::id();
        tell(&control, &Greeting::Started { pid, inode })?;
        Ok(Server {
            description: request,
            fuse,
            control,
            file: fuse::File {
                size: request.size,
                inode,
                // As the file systems that images lie on: the loop device is left as after those.
                block: match request.log.is_some() || request.over.is_some() {
                    true => 4096,
                    false => 0,
                },
            },
            image,
            model,
            log,
            marks,
            pending: HashMap::new(),
            held: HashMap::new(),
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
            if let Some(log) = &mut self.log {
                log.seal()?;
            }
            // A busy disk never waits, but marks must not.
            self.take_marks()?;
            if due.is_empty() && !self.wait()? {
                return Ok(());
            }
        }
    }

    /// Wait for a request or until something is due. Returns false if the probe is gone.
    fn wait(&mut self) -> Result<bool> {
        let left = self.model.next_at().map(|at| at.saturating_sub(self.now()));
        if let Some(0..=LOOK_NS) = left {
            std::hint::spin_loop();
            return Ok(true);
        }
        let time = left.map(|ns| Timespec {
            tv_sec: ((ns - LOOK_NS) / 1_000_000_000) as i64,
            tv_nsec: ((ns - LOOK_NS) % 1_000_000_000) as _,
        });
        let marks = self.marks.iter().flat_map(Marks::sockets);
        let mut polled: Vec<PollFd> = [&self.fuse, &self.control]
            .into_iter()
            .chain(marks)
            .map(|fd| PollFd::new(fd, PollFlags::IN))
            .collect();
        match poll(&mut polled, time.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(true),
            Ok(_) => {}
            Err(errno) => return Err(Error::os("wait for requests")(errno)),
        }
        let commanded = !polled[1].revents().is_empty();
        let marked = polled[2..].iter().any(|fd| !fd.revents().is_empty());
        if marked {
            self.take_marks()?;
        }
        if commanded {
            return self.obey();
        }
        Ok(true)
    }

    fn take_marks(&mut self) -> Result<()> {
        match (&mut self.marks, &mut self.log) {
            (Some(marks), Some(log)) => marks.take(log),
            _ => Ok(()),
        }
    }

    /// Execute a command of the probe. Returns false if the probe is gone.
    fn obey(&mut self) -> Result<bool> {
        let mut question = [0_u8; 1 + MARK_MOST + 1];
        let length = match recv(&self.control, &mut question[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(_) | Ok((0, _)) => return Ok(false),
            Ok((n, _)) => n,
        };
        let mut refused = None;
        match question[0] {
            AT_ONCE => self.put_model_aside()?,
            AS_MODELLED => self.at_once = false,
            MARK => match (&mut self.log, &question[1..length]) {
                (Some(log), text @ [_, ..]) if text.len() <= MARK_MOST => log.mark(text)?,
                (Some(_), _) => refused = Some(format!("a mark has 1 to {MARK_MOST} bytes")),
                (None, _) => refused = Some("this disk has no log".to_string()),
            },
            FORGET if self.description.over.is_none() => {
                refused = Some("this disk is over no image".to_string());
            }
            FORGET => self.forget()?,
            _ => {}
        }
        let answer = match refused {
            Some(message) => Answer::Refused(format!("simulated disk: {message}")),
            None => Answer::Account(self.model.account()),
        };
        tell(&self.control, &answer)?;
        Ok(true)
    }

    /// Drop the private pages of the image, which then shows the file below again.
    fn forget(&mut self) -> Result<()> {
        // SAFETY: nothing borrows the image; the map is private, and its file stays the content.
        let done = unsafe { self.image.unchecked_advise(UncheckedAdvice::DontNeed) };
        done.map_err(|cause| Error::Os {
            doing: "forget what was written".to_string(),
            errno: cause.raw_os_error().unwrap_or(libc::EINVAL),
        })
    }

    /// Answer all pending requests, and reset the model: it resumes as a disk at rest.
    fn put_model_aside(&mut self) -> Result<()> {
        self.at_once = true;
        let mut before = std::mem::replace(&mut self.model, Model::of(self.description)?);
        self.model.go_on_from(&mut before);
        for (tag, (kind, offset, length)) in std::mem::take(&mut self.pending) {
            self.reply_to(tag, kind, offset, length)?;
        }
        Ok(())
    }

    /// Accept the requests that have arrived. Returns false if the file system is gone.
    fn take_requests(&mut self, buffer: &mut [u8]) -> Result<bool> {
        loop {
            let n = match read(&self.fuse, &mut *buffer) {
                Ok(n) => n,
                Err(Errno::AGAIN) => return Ok(true),
                // We were interrupted, or the request was, before it was read.
                Err(Errno::INTR | Errno::NOENT) => continue,
                Err(Errno::NODEV) => return Ok(false),
                Err(errno) => return Err(Error::os("read a request")(errno)),
            };
            let arrival = self.now();
            let Some((unique, request)) = fuse::parse(&buffer[..n], &self.file) else {
                return Err(Error::Protocol(
                    "read a request: the request is empty".to_string(),
                ));
            };
            let (kind, offset, length) = match request {
                FuseRequest::Nothing => continue,
                FuseRequest::End => return Ok(false),
                FuseRequest::Now(Ok(body)) => {
                    reply(&self.fuse, &fuse::head(unique, 0, body.len()), &body)?;
                    continue;
                }
                FuseRequest::Now(Err(errno)) => {
                    reply(&self.fuse, &fuse::head(unique, errno, 0), &[])?;
                    continue;
                }
                FuseRequest::Read { offset, length } => (Kind::Read, offset, length),
                FuseRequest::Write { offset, data } => {
                    if self.log.is_some() {
                        self.held.insert(unique, data.to_vec());
                    } else {
                        self.image[range(offset, data.len() as u64)].copy_from_slice(data);
                    }
                    (Kind::Write, offset, data.len() as u64)
                }
                FuseRequest::Flush => {
                    if let Some(log) = &mut self.log {
                        log.flush()?;
                    }
                    (Kind::Flush, 0, 0)
                }
                FuseRequest::Zero { .. } if !self.model.trims() => {
                    reply(&self.fuse, &fuse::head(unique, libc::EOPNOTSUPP, 0), &[])?;
                    continue;
                }
                FuseRequest::Zero { offset, length } => {
                    if self.log.is_none() {
                        self.image[range(offset, length)].fill(0);
                    }
                    (Kind::Trim, offset, length)
                }
            };
            if self.at_once {
                self.model.note(kind, offset, length);
                self.reply_to(unique, kind, offset, length)?;
                continue;
            }
            self.pending.insert(unique, (kind, offset, length));
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
        let Some((kind, offset, length)) = self.pending.remove(&due.tag) else {
            let text = "answer a request: no such request is pending";
            return Err(Error::Protocol(text.to_string()));
        };
        self.reply_to(due.tag, kind, offset, length)?;
        let late = self.now().saturating_sub(due.at);
        self.model.late(late);
        Ok(())
    }

    /// Let a logged request reach image and log, in this order of completion.
    fn complete(&mut self, tag: u64, kind: Kind, offset: u64, length: u64) -> Result<()> {
        let Some(log) = &mut self.log else {
            return Ok(());
        };
        match kind {
            Kind::Write => {
                let data = self.held.remove(&tag).unwrap_or_default();
                self.image[range(offset, length)].copy_from_slice(&data);
                log.write(offset, &data)
            }
            Kind::Trim => {
                self.image[range(offset, length)].fill(0);
                log.zero(offset, length)
            }
            Kind::Read | Kind::Flush => Ok(()),
        }
    }

    fn reply_to(&mut self, tag: u64, kind: Kind, offset: u64, length: u64) -> Result<()> {
        self.complete(tag, kind, offset, length)?;
        match kind {
            Kind::Read => {
                let bytes = &self.image[range(offset, length)];
                reply(&self.fuse, &fuse::head(tag, 0, bytes.len()), bytes)
            }
            Kind::Write => {
                let body = fuse::written(length as u32);
                reply(&self.fuse, &fuse::head(tag, 0, body.len()), &body)
            }
            Kind::Flush | Kind::Trim => reply(&self.fuse, &fuse::head(tag, 0, 0), &[]),
        }
    }
}

/// Map an image privately: what is written stays in our memory.
fn image_over(path: &str, size: u64) -> Result<MmapMut> {
    let failed = |cause: std::io::Error| Error::Os {
        doing: format!("show the image {path}"),
        errno: cause.raw_os_error().unwrap_or(libc::EINVAL),
    };
    let file = File::open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?.len();
    if found != size {
        return Err(Error::Description(format!(
            "make a simulated disk: over {path}: expected {size} bytes, found {found}"
        )));
    }
    // SAFETY: the file is only changed while the disk is idle, and keeps its size.
    unsafe { MmapOptions::new().len(size as usize).map_copy(&file) }.map_err(failed)
}

fn range(offset: u64, length: u64) -> std::ops::Range<usize> {
    offset as usize..(offset + length) as usize
}

/// Allocate and lock memory for an image, and lock the rest of this process too, as far as
/// permitted.
fn locked(size: u64) -> Result<MmapMut> {
    let failed = |cause: std::io::Error| Error::Os {
        doing: format!("hold an image of {size} bytes in memory"),
        errno: cause.raw_os_error().unwrap_or(libc::ENOMEM),
    };
    let bytes = usize::try_from(size).unwrap_or(usize::MAX);
    let image = MmapOptions::new()
        .len(bytes)
        .populate()
        .map_anon()
        .map_err(failed)?;
    image.lock().map_err(failed)?;
    let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE);
    Ok(image)
}

/// Make this process punctual, since a disk does not wait for a CPU: as far as permitted, it gets
/// real-time priority, precise wake-ups, and does not wait for memory that only its own answers
/// would free. Failures are ignored.
fn punctual() {
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let _ = configure_io_flusher_behavior(true);
    let first = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure is valid and only read.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &first) };
}

/// Send an answer to the kernel. A request that was aborted meanwhile is ignored.
fn reply(fuse: &OwnedFd, head: &[u8], body: &[u8]) -> Result<()> {
    let parts = [IoSlice::new(head), IoSlice::new(body)];
    let n = if body.is_empty() { 1 } else { 2 };
    match writev(fuse, &parts[..n]) {
        Ok(_) | Err(Errno::NOENT | Errno::NODEV) => Ok(()),
        Err(errno) => Err(Error::os("answer a request")(errno)),
    }
}

fn tell(control: &OwnedFd, what: &impl Serialize) -> Result<()> {
    let failed = |cause| Error::Protocol(format!("report to the probe: {cause}"));
    let text = serde_json::to_vec(what).map_err(failed)?;
    send(control, &text, SendFlags::NOSIGNAL).map_err(Error::os("report to the probe"))?;
    Ok(())
}

/// Return the time of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
