//! Records what a work acknowledges: marks in the log of the disk under test, at the moment when
//! the work says so.
//!
//! The disk that logs its writes listens at a socket (SOCK_SEQPACKET): each message is the text of
//! a mark, and is answered once the mark is in the log. A mark therefore follows all writes that
//! had completed before, and precedes those that begin after the answer.

use std::cell::RefCell;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{connect, recv, send, socket_with, RecvFlags, SendFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::Timespec;

use crate::clock::monotonic_ns;
use crate::error::{Doing, Error, Result};
use crate::sys::{pipe, without_signals};

/// A program acknowledges by printing a line that begins with this word; the rest is what it
/// acknowledges.
const WORD: &[u8] = b"acknowledged ";
/// A longer line is output, not an acknowledgement.
const LONGEST_LINE: usize = 1 << 16;
/// How often to check whether the program has ended, while one of its children holds the pipe.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Where acknowledgements go.
pub enum Marker {
    /// To the disk that logs.
    Log(OwnedFd),
    /// Into the answer, with the time: in a guest, which cannot reach the disk's socket.
    Answer(RefCell<Vec<(u64, String)>>),
}

impl Marker {
    /// `path` is the socket of the disk that logs; empty for none.
    pub fn connect(path: &str) -> Result<Self> {
        if path.is_empty() {
            return Ok(Marker::Answer(RefCell::default()));
        }
        let doing = || format!("connect to the disk that logs its writes ({path})");
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).doing(doing)?;
        let address = SocketAddrUnix::new(path).doing(doing)?;
        connect(&socket, &address).doing(doing)?;
        Ok(Marker::Log(socket))
    }

    /// Record an acknowledgement. Its mark is in the log when this returns.
    pub fn mark(&self, text: &[u8]) -> std::result::Result<(), Errno> {
        let socket = match self {
            Marker::Log(socket) => socket,
            Marker::Answer(collected) => {
                let text = String::from_utf8_lossy(text).into_owned();
                collected.borrow_mut().push((monotonic_ns(), text));
                return Ok(());
            }
        };
        send(socket, text, SendFlags::NOSIGNAL)?;
        let mut answer = [0_u8; 1];
        match recv(socket, &mut answer[..], RecvFlags::empty())? {
            (0, _) => Err(Errno::PIPE),
            _ => Ok(()),
        }
    }

    /// Take what is to go into the answer, with the times in nanoseconds (CLOCK_MONOTONIC).
    pub fn collected(self) -> Vec<(u64, String)> {
        match self {
            Marker::Log(_) => Vec::new(),
            Marker::Answer(collected) => collected.into_inner(),
        }
    }
}

/// Reads what a program prints, and acknowledges the lines that say so. All others go to a file.
///
/// In a dialog it also writes the program's input, in parts: each but the first only after an
/// acknowledgement. Then each mark precedes all that the program does next.
pub struct Listener {
    writing: OwnedFd,
    /// The program's end of its input, in a dialog.
    input: Option<OwnedFd>,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<()>>,
}

/// What the thread of a listener works on.
struct Ears {
    reading: OwnedFd,
    marker: Marker,
    rest: std::fs::File,
    /// The next parts of a dialog, and where to write them; None when all are written.
    dialog: Option<(OwnedFd, std::vec::IntoIter<Vec<u8>>)>,
    ended: Arc<AtomicBool>,
}

impl Listener {
    /// `rest` is the file for all other output; `dialog` are the parts of the input.
    pub fn start(marks: &str, rest: &OwnedFd, dialog: &[String]) -> Result<Self> {
        let (reading, writing) = pipe()?;
        let (input, ours) = match dialog.is_empty() {
            true => (None, None),
            false => pipe().map(|(theirs, ours)| (Some(theirs), Some(ours)))?,
        };
        let rest = rest
            .try_clone()
            .doing(|| "duplicate the output of a command")?;
        let ended = Arc::new(AtomicBool::new(false));
        let ears = Ears {
            reading,
            marker: Marker::connect(marks)?,
            rest: std::fs::File::from(rest),
            dialog: ours.map(|ours| {
                let parts: Vec<_> = dialog
                    .iter()
                    .map(|part| part.clone().into_bytes())
                    .collect();
                (ours, parts.into_iter())
            }),
            ended: Arc::clone(&ended),
        };
        // Signals, such as that of the timeout, belong to the thread that waits for the program.
        let thread = without_signals(move || std::thread::spawn(move || ears.listen()));
        Ok(Listener {
            writing,
            input,
            ended,
            thread,
        })
    }

    /// The descriptor for the program's standard input, in a dialog.
    pub fn stdin(&self) -> Option<RawFd> {
        self.input.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The descriptor for the program's standard output.
    pub fn stdout(&self) -> RawFd {
        self.writing.as_raw_fd()
    }

    /// Read what is left after the program has ended.
    pub fn finish(self) -> Result<()> {
        drop((self.writing, self.input));
        self.ended.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| {
            Err(Error::verify(
                "the thread that reads acknowledgements failed",
            ))
        })
    }
}

impl Ears {
    fn listen(mut self) -> Result<()> {
        let doing = || "read the acknowledgements of a command";
        let mut waiting = Vec::new();
        let mut piece = vec![0_u8; 1 << 14];
        self.say_next();
        loop {
            let last = self.ended.load(Ordering::Acquire);
            let mut polled = [PollFd::from_borrowed_fd(
                self.reading.as_fd(),
                PollFlags::IN,
            )];
            match poll(&mut polled, Some(&LOOK)) {
                Ok(0) if last => break,
                Ok(0) | Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno).doing(doing),
                Ok(_) => {}
            }
            match rustix::io::read(&self.reading, &mut piece).doing(doing)? {
                0 => break,
                n => waiting.extend_from_slice(&piece[..n]),
            }
            self.take_lines(&mut waiting)?;
        }
        self.rest.write_all(&waiting).doing(doing)
    }

    /// Take the complete lines: acknowledge them, or pass them on.
    fn take_lines(&mut self, waiting: &mut Vec<u8>) -> Result<()> {
        let keep = || "keep the output of a command";
        let mut taken = 0;
        while let Some(length) = waiting[taken..].iter().position(|byte| *byte == b'\n') {
            let line = &waiting[taken..=taken + length];
            taken += length + 1;
            let Some(item) = line[..length].strip_prefix(WORD) else {
                self.rest.write_all(line).doing(keep)?;
                continue;
            };
            self.marker.mark(item).doing(|| {
                let shown = String::from_utf8_lossy(&item[..item.len().min(80)]);
                format!("acknowledge {} bytes: {shown}", item.len())
            })?;
            self.say_next();
        }
        if waiting.len() - taken > LONGEST_LINE {
            self.rest.write_all(&waiting[taken..]).doing(keep)?;
            taken = waiting.len();
        }
        waiting.drain(..taken);
        Ok(())
    }

    /// Write the next part of a dialog; after the last one, the input ends. A program that reads no
    /// more has ended; the code that waits for it reports this.
    fn say_next(&mut self) {
        let Some((ours, parts)) = &mut self.dialog else {
            return;
        };
        let written = parts.next().map(|part| {
            let mut left = &part[..];
            while !left.is_empty() {
                match rustix::io::write(&*ours, left) {
                    Ok(n) => left = &left[n..],
                    Err(Errno::INTR) => {}
                    Err(_) => return false,
                }
            }
            true
        });
        if written != Some(true) || parts.len() == 0 {
            self.dialog = None;
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use rustix::net::{accept, bind, listen as await_connections};

    /// A disk's end of the socket: collects marks until the connection ends.
    pub fn collecting(path: &str) -> JoinHandle<Vec<String>> {
        let socket = socket_with(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        await_connections(&socket, 1).unwrap();
        std::thread::spawn(move || {
            let connection = accept(&socket).unwrap();
            let mut marks = Vec::new();
            let mut text = [0_u8; 512];
            while let Ok((n @ 1.., _)) = recv(&connection, &mut text[..], RecvFlags::empty()) {
                marks.push(String::from_utf8_lossy(&text[..n]).into_owned());
                send(&connection, b"\n", SendFlags::NOSIGNAL).unwrap();
            }
            marks
        })
    }

    #[test]
    fn only_lines_that_say_so_are_acknowledged() {
        let path = format!("/tmp/ioprobe-test-{}-listener", std::process::id());
        let _ = std::fs::remove_file(&path);
        let marks = collecting(&path);
        let rest = crate::sys::memory_file(&std::ffi::CString::default()).unwrap();
        let listener = Listener::start(&path, &rest, &[]).unwrap();
        for piece in [
            "acknowledged 1\nother\nackno",
            "wledged two words\nleft over",
        ] {
            rustix::io::write(&listener.writing, piece.as_bytes()).unwrap();
        }
        listener.finish().unwrap();
        assert_eq!(marks.join().unwrap(), ["1", "two words"]);
        let mut text = [0; 64];
        let n = rustix::io::pread(&rest, &mut text, 0).unwrap();
        assert_eq!(&text[..n], b"other\nleft over");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn in_a_dialog_each_part_is_written_only_after_an_acknowledgement() {
        let path = format!("/tmp/ioprobe-test-{}-dialog", std::process::id());
        let _ = std::fs::remove_file(&path);
        let marks = collecting(&path);
        let rest = crate::sys::memory_file(&std::ffi::CString::default()).unwrap();
        let parts = ["one\n", "two\n"].map(str::to_string);
        let listener = Listener::start(&path, &rest, &parts).unwrap();
        let input = listener.input.as_ref().unwrap();
        let mut text = [0; 64];
        let n = rustix::io::read(input, &mut text).unwrap();
        assert_eq!(&text[..n], b"one\n");
        rustix::fs::fcntl_setfl(input, rustix::fs::OFlags::NONBLOCK).unwrap();
        assert!(rustix::io::read(input, &mut text).is_err());
        rustix::io::write(&listener.writing, b"acknowledged 1\n").unwrap();
        let n = loop {
            match rustix::io::read(input, &mut text) {
                Ok(n) => break n,
                Err(_) => std::thread::yield_now(),
            }
        };
        assert_eq!(&text[..n], b"two\n");
        // The input ends with the last part.
        while rustix::io::read(input, &mut text) != Ok(0) {
            std::thread::yield_now();
        }
        listener.finish().unwrap();
        assert_eq!(marks.join().unwrap(), ["1"]);
        std::fs::remove_file(path).unwrap();
    }
}
