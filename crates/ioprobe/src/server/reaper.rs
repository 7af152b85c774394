//! The process between the probe and a server: everything that the server starts and leaves behind
//! is below it.
//!
//! Without it, an orphan of the server would become the probe's child and be indistinguishable from
//! what a command has left behind. It reaps, and reports how the server itself ended; only it
//! learns that. When the probe dies, the kernel kills the reaper, and with it the server.

use crate::clock::monotonic_ns;
use crate::error::Doing;
use crate::isolate::end_with;
use crate::sys;
use rustix::fs::{fcntl_setfl, OFlags};
use rustix::process::{chdir, getpid, set_child_subreaper, Pid};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};
use std::process::exit;

use libc::{c_int, pid_t};

use crate::error::{Error, Result};
use crate::process::program::Program;
use crate::process::start::{Starter, Surroundings};
use crate::protocol::Rounds;
use crate::sys::{check, write_all};

/// The messages of a reaper, one line each.
#[derive(Debug, PartialEq, Eq)]
pub enum ReaperMessage {
    Started(pid_t),
    /// It could not be started: what failed, and the errno.
    Refused(String, c_int),
    /// A wait status.
    Ended(c_int),
    /// It ended with status 0, as it may; and the process that does the next round, if there is one.
    Round(Round, Option<pid_t>),
}

/// When a round began and ended, by the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    pub start_ns: u64,
    pub end_ns: u64,
}

/// Further rounds are not reported, so that the pipe always has room for the end of the server.
pub const MOST_ROUNDS: usize = 1000;

pub struct Reaper {
    pub pid: pid_t,
    reading: OwnedFd,
    received: String,
}

impl Reaper {
    /// Start a program below its own reaper. Returns before the program runs.
    pub fn start(
        program: &Program,
        around: &Surroundings,
        starter: &mut Starter,
        rounds: Option<Rounds>,
    ) -> Result<Self> {
        let (reading, writing) = sys::pipe()?;
        fcntl_setfl(&reading, OFlags::NONBLOCK).doing(|| "set up a pipe")?;
        fcntl_setfl(&writing, OFlags::NONBLOCK).doing(|| "set up a pipe")?;
        let probe = getpid();
        // SAFETY: the process has one thread, so the child can go on like the parent.
        match check(unsafe { libc::fork() }, || "fork".to_string())? {
            0 => keep(probe, program, around, starter, &writing, rounds),
            pid => Ok(Reaper {
                pid,
                reading,
                received: String::new(),
            }),
        }
    }

    /// Return the next message within this many milliseconds; None if there is none.
    pub fn hear(&mut self, wait_ms: c_int) -> Result<Option<ReaperMessage>> {
        if let Some(message) = self.line() {
            return Ok(Some(message));
        }
        if !sys::is_ready(&self.reading, wait_ms) {
            return Ok(None);
        }
        let mut piece = [0_u8; 512];
        match rustix::io::read(&self.reading, &mut piece) {
            Err(_) => Ok(None),
            Ok(0) => Err(Error::verify(
                "the server's reaper process exited unexpectedly",
            )),
            Ok(n) => {
                self.received
                    .push_str(&String::from_utf8_lossy(&piece[..n]));
                Ok(self.line())
            }
        }
    }

    fn line(&mut self) -> Option<ReaperMessage> {
        let end = self.received.find('\n')?;
        let line: String = self.received.drain(..=end).collect();
        parsed(line.trim_end())
    }

    /// End it at once; what is left below becomes the probe's.
    pub fn end(self) {
        let _ = sys::kill(self.pid);
        let _ = sys::wait(self.pid, 0);
    }
}

fn parsed(line: &str) -> Option<ReaperMessage> {
    let (word, rest) = line.split_once(' ')?;
    match word {
        "started" => rest.parse().ok().map(ReaperMessage::Started),
        "ended" => rest.parse().ok().map(ReaperMessage::Ended),
        "round" => {
            let mut numbers = rest.split(' ').map(str::parse::<u64>);
            let mut next = || numbers.next()?.ok();
            let (start_ns, end_ns, pid) = (next()?, next()?, next()?);
            let pid = Some(pid as pid_t).filter(|pid| *pid > 0);
            Some(ReaperMessage::Round(Round { start_ns, end_ns }, pid))
        }
        "refused" => {
            let (errno, doing) = rest.split_once(' ')?;
            Some(ReaperMessage::Refused(
                doing.to_string(),
                errno.parse().ok()?,
            ))
        }
        _ => None,
    }
}

fn keep(
    probe: Pid,
    program: &Program,
    around: &Surroundings,
    starter: &mut Starter,
    writing: &OwnedFd,
    rounds: Option<Rounds>,
) -> ! {
    end_with(probe);
    if set_child_subreaper(Some(getpid())).is_err() {
        exit(1);
    }
    let _ = chdir("/");
    let needed = [
        around.stdin,
        around.stdout,
        around.stderr,
        writing.as_raw_fd(),
    ];
    give_up_all_but(&needed);
    let mut start_ns = monotonic_ns();
    let mut server = match starter.start(program, around) {
        Ok(pid) => pid,
        Err(error) => {
            let errno = match &error {
                Error::Os { errno, .. } => *errno,
                _ => 0,
            };
            let doing = error.to_string().replace('\n', " ");
            tell(writing, &format!("refused {errno} {doing}\n"));
            exit(1)
        }
    };
    tell(writing, &format!("started {server}\n"));
    let mut told = 0;
    loop {
        match sys::wait(-1, libc::__WALL) {
            // Do not exit: its times are the server's, and must stay readable until the probe has
            // read them.
            // SAFETY: no pointers are involved.
            Err(_) => unsafe {
                libc::pause();
            },
            Ok(Some((pid, 0))) if pid == server && rounds.is_some() => {
                let end_ns = monotonic_ns();
                let before_ns = std::mem::replace(&mut start_ns, end_ns);
                server = match rounds {
                    Some(Rounds::Repeat) => match starter.start(program, around) {
                        Ok(pid) => pid,
                        Err(_) => exit(1), // the probe reports that the reaper is gone
                    },
                    _ => 0,
                };
                told += 1;
                if told <= MOST_ROUNDS {
                    tell(writing, &format!("round {before_ns} {end_ns} {server}\n"));
                }
            }
            Ok(Some((pid, status))) if pid == server => {
                tell(writing, &format!("ended {status}\n"));
            }
            Ok(_) => {}
        }
    }
}

/// Close the probe's descriptors. Some hold the lab's devices, which stay as long as they are held.
fn give_up_all_but(needed: &[RawFd]) {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    for fd in open {
        if fd > 2 && !needed.contains(&fd) {
            // SAFETY: nothing in this process uses it any more.
            unsafe { libc::close(fd) };
        }
    }
    // The probe's standard streams belong to its conductor.
    for standard in 0..=2 {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(needed[0], standard) };
    }
}

fn tell(writing: &OwnedFd, line: &str) {
    // If the reader is gone or never reads, it does not matter.
    let _ = write_all(writing, line.as_bytes(), "what a server did");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        assert_eq!(parsed("started 42"), Some(ReaperMessage::Started(42)));
        assert_eq!(parsed("ended 256"), Some(ReaperMessage::Ended(256)));
        let round = Round {
            start_ns: 5,
            end_ns: 7,
        };
        let next = |pid| Some(ReaperMessage::Round(round, pid));
        assert_eq!(parsed("round 5 7 42"), next(Some(42)));
        assert_eq!(parsed("round 5 7 0"), next(None));
        let refused = ReaperMessage::Refused("start x: execute it: no".to_string(), 2);
        assert_eq!(parsed("refused 2 start x: execute it: no"), Some(refused));
        for line in [
            "",
            "started",
            "started x",
            "refused 2",
            "left 1",
            "round 5 7",
        ] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }
}
