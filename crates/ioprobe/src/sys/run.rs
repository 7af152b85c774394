//! Runs a program and captures its output: mkfs, tune2fs and other set-up tools.
//!
//! Not a measurement: the output goes through pipes that are drained while the program runs. Output
//! beyond the limit is read and discarded, so that a verbose program neither blocks nor fills
//! memory.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fs::{fcntl_setfl, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::time::Timespec;
use serde_json::{json, Value};

use crate::error::{Doing, Result};
use crate::process::limit::{kill_group, Limit};
use crate::process::program::Environment;
use crate::process::start::{Starter, Surroundings};
use crate::process::stragglers;
use crate::protocol::Run;
use crate::sys::{self, c_text, memory_file, open, process_descriptor, write_all};

pub fn run(request: Run, starter: &mut Starter, isolated: bool) -> Result<Value> {
    let environment = Environment::new(request.environment.as_ref())?;
    let program = environment.program(&request.argv)?;
    let limit = Limit::new(request.timeout_s)?;
    let (out_reading, out_writing) = pipe()?;
    let (err_reading, err_writing) = pipe()?;
    let stdin = input(request.stdin.as_deref())?;
    let around = Surroundings {
        environment: environment.laid_out()?,
        folder: request.cwd.as_deref().map(c_text).transpose()?,
        user: request.user,
        groups: request.groups,
        traced: false,
        stdin: stdin.as_raw_fd(),
        stdout: out_writing.as_raw_fd(),
        stderr: err_writing.as_raw_fd(),
    };
    let start = Instant::now();
    let pid = starter.start(&program, &around)?;
    drop((out_writing, err_writing));
    let mut streams = [
        Stream::new(out_reading, request.output_limit),
        Stream::new(err_reading, request.output_limit),
    ];
    let outcome = attend(pid, &mut streams, start, limit, isolated);
    let wall = start.elapsed();
    if outcome.is_err() {
        kill_group(pid);
    }
    stragglers::sweep(isolated, true)?;
    let (status, timed_out) = outcome?;
    let [out, err] = streams;
    Ok(json!({
        "exit": libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        "signal": libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        "timed_out": timed_out,
        "stdout": out.text(),
        "stderr": err.text(),
        "truncated": out.truncated || err.truncated,
        "wall_ns": wall.as_nanos() as u64,
    }))
}

/// Drain the pipes until the program ends, and kill its group on timeout. Returns its wait status,
/// and whether it timed out.
fn attend(
    pid: pid_t,
    streams: &mut [Stream; 2],
    start: Instant,
    limit: Limit,
    isolated: bool,
) -> Result<(c_int, bool)> {
    let ended = process_descriptor(pid)?;
    let deadline = limit.seconds().map(Duration::from_secs_f64);
    let mut timed_out = false;
    loop {
        let left = match deadline {
            Some(deadline) if !timed_out => deadline.checked_sub(start.elapsed()),
            _ => Some(Duration::MAX),
        };
        if left.is_none() {
            kill_group(pid);
            stragglers::shoot(isolated)?;
            timed_out = true;
        }
        let within =
            left.map(|left| left.min(Duration::from_secs(1000)) + Duration::from_millis(1));
        let within = Timespec::try_from(within.unwrap_or_default()).ok();
        let mut polls = vec![PollFd::new(&ended, PollFlags::IN)];
        for stream in streams.iter().filter(|stream| stream.open) {
            polls.push(PollFd::new(&stream.pipe, PollFlags::IN));
        }
        match poll(&mut polls, within.as_ref()) {
            Err(Errno::INTR) => {}
            polled => drop(polled.doing(|| "wait for a program")?),
        }
        for stream in streams.iter_mut() {
            stream.take_what_is_there()?;
        }
        if let Ok(Some((_, status))) = sys::wait(pid, libc::WNOHANG) {
            for stream in streams.iter_mut() {
                stream.take_what_is_there()?;
            }
            return Ok((status, timed_out));
        }
    }
}

struct Stream {
    pipe: OwnedFd,
    open: bool,
    kept: Vec<u8>,
    limit: usize,
    truncated: bool,
}

impl Stream {
    fn new(pipe: OwnedFd, limit: usize) -> Self {
        Stream {
            pipe,
            open: true,
            kept: Vec::new(),
            limit,
            truncated: false,
        }
    }

    /// Read what is available, in a bounded number of reads: endless output must not keep the
    /// timeout from being noticed.
    fn take_what_is_there(&mut self) -> Result<()> {
        let mut piece = [0; 65_536];
        for _ in 0..16 {
            if !self.open {
                break;
            }
            match rustix::io::read(&self.pipe, &mut piece) {
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Ok(0) => self.open = false,
                read => {
                    let n = read.doing(|| "read a program's output")?;
                    let room = self.limit - self.kept.len();
                    self.truncated |= n > room;
                    self.kept.extend_from_slice(&piece[..room.min(n)]);
                }
            }
        }
        Ok(())
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.kept).into_owned()
    }
}

/// Create a pipe with a non-blocking read end.
fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let (reading, writing) = sys::pipe()?;
    fcntl_setfl(&reading, OFlags::NONBLOCK).doing(|| "set up a pipe")?;
    Ok((reading, writing))
}

/// Open a program's standard input: empty, or this text.
pub fn input(text: Option<&str>) -> Result<OwnedFd> {
    let text = match text {
        None => return open("/dev/null", libc::O_RDONLY, 0),
        Some(text) => text,
    };
    let name = c_text("ioprobe-stdin")?;
    let file = memory_file(&name)?;
    write_all(&file, text.as_bytes(), "standard input")?;
    rewind(&file)?;
    Ok(file)
}

pub fn rewind(file: &OwnedFd) -> Result<()> {
    rustix::fs::seek(file, SeekFrom::Start(0)).doing(|| "rewind a file in memory")?;
    Ok(())
}
