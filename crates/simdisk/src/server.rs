//! The process that simulates a disk: holds the image in memory and answers the kernel when the
//! model says so.
//!
//! It is a separate process, outside the probe's namespaces, because a process waiting for the disk
//! must never be the one that serves it. When the probe dies, this dies too, the kernel aborts the
//! connection, and whatever waits gets an error.

use std::collections::HashMap;
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use memmap2::{MmapMut, MmapOptions};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::{read, writev, Errno};
use rustix::mm::{mlockall, MlockAllFlags};
use rustix::net::{recv, send, RecvFlags, SendFlags};
use rustix::process::configure_io_flusher_behavior;
use rustix::thread::set_current_timer_slack;
use rustix::time::{clock_gettime, ClockId, Timespec};
use serde::Serialize;

use super::control::{Greeting, AS_MODELLED, AT_ONCE};
use super::fuse::{self, FuseRequest};
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
    /// Allocated and locked from the start, so that no answer waits for memory.
    image: MmapMut,
    model: Model,
    /// Pending requests of the model, by id: kind, offset and length.
    pending: HashMap<u64, (Kind, u64, u64)>,
    /// Bypass the model: answer each request as soon as it arrives.
    at_once: bool,
    began: u64,
}

impl<'a> Server<'a> {
    fn new(request: &'a Description, fuse: OwnedFd, control: OwnedFd) -> Result<Self> {
        let made = Model::of(request).and_then(|model| Ok((model, locked(request.size)?)));
        let (model, image) = match made {
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
            },
            image,
            model,
            pending: HashMap::new(),
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
        let mut polled = [&self.fuse, &self.control].map(|fd| PollFd::new(fd, PollFlags::IN));
        match poll(&mut polled, time.as_ref()) {
            Ok(n) if n > 0 && !polled[1].revents().is_empty() => self.obey(),
            Ok(_) | Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(Error::os("wait for requests")(errno)),
        }
    }

    /// Execute a command of the probe. Returns false if the probe is gone.
    fn obey(&mut self) -> Result<bool> {
        let mut question = [0_u8; 16];
        match recv(&self.control, &mut question[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(_) | Ok((0, _)) => return Ok(false),
            Ok(_) => {}
        }
        match question[0] {
            AT_ONCE => self.put_model_aside()?,
            AS_MODELLED => self.at_once = false,
            _ => {}
        }
        tell(&self.control, &self.model.account())?;
        Ok(true)
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
                    self.image[range(offset, data.len() as u64)].copy_from_slice(data);
                    (Kind::Write, offset, data.len() as u64)
                }
                FuseRequest::Flush => (Kind::Flush, 0, 0),
                FuseRequest::Zero { .. } if !self.model.trims() => {
                    reply(&self.fuse, &fuse::head(unique, libc::EOPNOTSUPP, 0), &[])?;
                    continue;
                }
                FuseRequest::Zero { offset, length } => {
                    self.image[range(offset, length)].fill(0);
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

    fn reply_to(&self, tag: u64, kind: Kind, offset: u64, length: u64) -> Result<()> {
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

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
