//! Reads what programs print and discards it.
//!
//! Not /dev/null: some programs notice it and do less. GNU grep stops at a file's first match, and
//! tar does not read the files.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::error::{Doing, Error, Result};
use crate::sys::{pipe, without_signals};

/// Requested size of the pipe, in bytes: the most that users other than root may have by default.
const PIPE: usize = 1 << 20;
/// How often to check whether the programs have ended, while one of their children holds the pipe.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// A pipe that a thread empties.
pub struct Drain {
    writing: OwnedFd,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Drain {
    pub fn start() -> Result<Self> {
        let (reading, writing) = pipe()?;
        // A smaller pipe does as well, only with more waiting.
        let _ = rustix::pipe::fcntl_setpipe_size(&writing, PIPE);
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        // Signals, such as that of the timeout, belong to the thread that waits for the program.
        let thread = without_signals(move || std::thread::spawn(move || empty(&reading, &seen)));
        Ok(Drain {
            writing,
            ended,
            thread,
        })
    }

    /// The descriptor for the programs' standard output.
    pub fn stdout(&self) -> RawFd {
        self.writing.as_raw_fd()
    }

    /// Return how many bytes the programs printed. What a child left behind prints later is lost.
    pub fn finish(self) -> Result<u64> {
        drop(self.writing);
        self.ended.store(true, Ordering::Release);
        self.thread.join().unwrap_or_else(|_| {
            Err(Error::verify(
                "the thread that reads a command's output failed",
            ))
        })
    }
}

fn empty(reading: &OwnedFd, ended: &AtomicBool) -> Result<u64> {
    let doing = || "read the output of a command";
    let mut piece = vec![0_u8; 1 << 17];
    let mut total = 0;
    loop {
        let last = ended.load(Ordering::Acquire);
        let mut polled = [PollFd::from_borrowed_fd(reading.as_fd(), PollFlags::IN)];
        match poll(&mut polled, Some(&LOOK)) {
            Ok(0) if last => return Ok(total),
            Ok(0) | Err(Errno::INTR) => continue,
            polled => drop(polled.doing(doing)?),
        }
        match rustix::io::read(reading, &mut piece) {
            Ok(0) => return Ok(total),
            Err(Errno::INTR) => {}
            read => total += read.doing(doing)? as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn run(script: &str) -> u64 {
        let drain = Drain::start().unwrap();
        let stdout = drain.writing.try_clone().unwrap();
        let status = Command::new("/bin/sh")
            .args(["-c", script])
            .stdout(Stdio::from(stdout))
            .status()
            .unwrap();
        assert!(status.success());
        drain.finish().unwrap()
    }

    #[test]
    fn everything_that_is_printed_is_read_and_counted() {
        assert_eq!(run("true"), 0);
        assert_eq!(run("head -c 3000001 /dev/zero"), 3_000_001);
    }

    #[test]
    fn a_child_that_holds_the_pipe_is_not_waited_for() {
        let began = std::time::Instant::now();
        assert_eq!(run("echo before; sleep 3 & true"), 7);
        assert!(began.elapsed().as_secs_f64() < 2.0);
    }
}
