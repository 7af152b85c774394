//! The DevTools protocol over pipes: JSON, each message ended by a NUL (`--remote-debugging-pipe`).

use crate::error::Doing;
use rustix::fs::{fcntl_setfl, OFlags};
use std::os::unix::io::{AsRawFd, OwnedFd};

use serde_json::{json, Value};

use crate::clock::monotonic_ns;
use crate::error::{last_errno, Error, Result};
use crate::sys::{pipe, write_all};

/// A message longer than this is no answer to anything that is asked here.
const MOST_MESSAGE: usize = 16 << 20;

pub struct DevTools {
    to: OwnedFd,
    from: OwnedFd,
    heard: Vec<u8>,
    next_id: u64,
}

/// The browser's ends of two pipes: what it reads, what it writes.
pub struct Ends {
    pub reading: OwnedFd,
    pub writing: OwnedFd,
}

impl DevTools {
    pub fn new() -> Result<(Self, Ends)> {
        let (theirs, to) = pipe()?;
        let (from, theirs_too) = pipe()?;
        fcntl_setfl(&from, OFlags::NONBLOCK).doing(|| "set up a pipe")?;
        let ends = Ends {
            reading: theirs,
            writing: theirs_too,
        };
        let tools = DevTools {
            to,
            from,
            heard: Vec::new(),
            next_id: 1,
        };
        Ok((tools, ends))
    }

    /// Asks for something, of the browser itself or of one of its pages; the number of the answer.
    pub fn send(&mut self, method: &str, params: Value, session: Option<&str>) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        write_all(&self.to, &bytes, "the browser's pipe")?;
        Ok(id)
    }

    /// Asks, and waits for the answer; whatever else is told meanwhile is passed over.
    pub fn call(
        &mut self,
        method: &str,
        params: Value,
        session: Option<&str>,
        until_ns: u64,
    ) -> Result<Value> {
        let id = self.send(method, params, session)?;
        loop {
            let message = self.next(until_ns)?.ok_or_else(|| {
                Error::verify(format!("the browser gave no answer to {method} in time"))
            })?;
            if message["id"] == id {
                return match message.get("error") {
                    None => Ok(message["result"].clone()),
                    Some(error) => Err(Error::verify(format!(
                        "the browser refused {method}: {}",
                        error["message"]
                    ))),
                };
            }
        }
    }

    /// The next message; None where none has come by that moment.
    pub fn next(&mut self, until_ns: u64) -> Result<Option<Value>> {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == 0) {
                let message: Vec<u8> = self.heard.drain(..=end).collect();
                let text = &message[..message.len() - 1];
                return serde_json::from_slice(text).map(Some).map_err(|cause| {
                    Error::verify(format!("the browser said what is no message: {cause}"))
                });
            }
            if self.heard.len() > MOST_MESSAGE {
                return Err(Error::verify("the browser's message has no end"));
            }
            if !self.hear(until_ns)? {
                return Ok(None);
            }
        }
    }

    /// Takes what has come, or waits for it until then; whether anything has.
    fn hear(&mut self, until_ns: u64) -> Result<bool> {
        let left_ns = until_ns.saturating_sub(monotonic_ns());
        let mut poll = libc::pollfd {
            fd: self.from.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let limit = libc::timespec {
            tv_sec: (left_ns / 1_000_000_000).min(1_000_000) as libc::time_t,
            tv_nsec: (left_ns % 1_000_000_000) as libc::c_long,
        };
        let mut piece = [0_u8; 65_536];
        // SAFETY: the structures and the array are ours.
        let n = unsafe {
            match libc::ppoll(&mut poll, 1, &limit, std::ptr::null()) {
                0 => return Ok(false),
                -1 if last_errno() == libc::EINTR => return Ok(monotonic_ns() < until_ns),
                -1 => return Err(Error::last_os("wait for a browser")),
                _ => libc::read(poll.fd, piece.as_mut_ptr().cast(), piece.len()),
            }
        };
        match n {
            0 => Err(Error::verify("the browser has ended by itself")),
            -1 if matches!(last_errno(), libc::EAGAIN | libc::EINTR) => Ok(true),
            -1 => Err(Error::last_os("read what a browser says")),
            n => {
                self.heard.extend_from_slice(&piece[..n as usize]);
                Ok(true)
            }
        }
    }
}
