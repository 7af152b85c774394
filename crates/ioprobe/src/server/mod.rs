//! Servers that a study needs: started in the lab before a timed part, accounted for during it,
//! stopped after it.
//!
//! Nothing here is timed. A server runs below its own reaper (`reaper`). So what it starts is
//! distinguishable from what commands leave behind, is counted with the server (`tree`), and ends
//! with it. If a server dies during a job, the job fails. If it does not become ready, the error
//! shows the last of its output.

mod dead;
mod reaper;
mod tree;

use std::cell::RefCell;
use std::ffi::CString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};
use rustix::fs::{fcntl_setfl, OFlags, SeekFrom};
use rustix::process::{pidfd_send_signal, Signal};
use serde_json::{json, Map, Value};

pub use self::dead::judged;
use self::reaper::{Reaper, ReaperMessage, Round, MOST_ROUNDS};
pub use self::tree::Used;
use crate::error::{Doing, Error, Result};
use crate::jobs::require_root_for_user;
use crate::process::limit::Limit;
use crate::process::program::Environment;
use crate::process::start::{Starter, Surroundings};
use crate::process::stragglers;
use crate::protocol::{EndSignal, Nothing, OfServer, Ready, ServerStart, ServerStop};
use crate::sys;
use crate::sys::{c_text, memory_file, open, process_descriptor};

/// How much of a server's latest output is reported, in bytes.
const LAST_WORDS: usize = 2048;
/// Its output is kept in memory; if it exceeds this, it is discarded before the next job.
const MOST_SAID: u64 = 1 << 20;
const PAUSE_MS: c_int = 5;
/// How long a killed server may take to disappear: the kernel may still be writing for it.
const GONE_WITHIN: Duration = Duration::from_secs(20);
const MOST_SERVERS: usize = 8;

struct Server {
    name: String,
    program: String,
    reaper: Reaper,
    pid: pid_t,
    /// None if it had ended before the pidfd could be opened.
    descriptor: Option<OwnedFd>,
    log: OwnedFd,
    ended: Option<c_int>,
    /// It may end by itself, so that nobody needs to ask it to.
    in_rounds: bool,
    rounds: Vec<Round>,
}

thread_local! {
    /// Per process, like its children: every job accounts for all of them.
    static SERVERS: RefCell<Vec<Server>> = const { RefCell::new(Vec::new()) };
}

/// Start a server and wait until it is ready.
pub fn start(request: ServerStart, starter: &mut Starter, isolated: bool) -> Result<Value> {
    let name = request.name.clone();
    let doing = format!("start server {name}");
    let taken = SERVERS.with(|all| {
        let all = all.borrow();
        all.len() >= MOST_SERVERS || all.iter().any(|server| server.name == name)
    });
    if taken {
        return Err(Error::bad(format!(
            "{doing}: the name must be unique, and at most {MOST_SERVERS} servers can run"
        )));
    }
    if let Some(ready) = &request.ready {
        check(ready)?;
    }
    let limit = Limit::new(Some(request.timeout_s))?;
    let environment = Environment::new(request.environment.as_ref())?;
    let program = environment.program(&request.argv)?;
    if request.user.is_some() {
        require_root_for_user()?;
    }
    let log = memory_file(&CString::default())?;
    append_only(&log)?;
    let stdin = open("/dev/null", libc::O_RDONLY, 0)?;
    let around = Surroundings {
        environment: environment.laid_out()?,
        folder: request.cwd.as_deref().map(c_text).transpose()?,
        user: request.user,
        groups: Vec::new(),
        traced: false,
        stdin: stdin.as_raw_fd(),
        stdout: log.as_raw_fd(),
        stderr: log.as_raw_fd(),
    };
    let begun = Instant::now();
    let deadline = begun + Duration::from_secs_f64(limit.seconds().unwrap_or_default());
    let mut reaper = Reaper::start(&program, &around, starter, request.rounds)?;
    stragglers::keep(reaper.pid);
    let pid = match started(&mut reaper, deadline) {
        Ok(pid) => pid,
        Err(error) => {
            give_up(reaper, isolated)?;
            return Err(error);
        }
    };
    let mut server = Server {
        name: request.name,
        program: program.name,
        reaper,
        pid,
        descriptor: process_descriptor(pid).ok(),
        log,
        ended: None,
        in_rounds: request.rounds.is_some(),
        rounds: Vec::new(),
    };
    let ready = request.ready.as_ref();
    if let Some(Err(error)) = ready.map(|ready| wait_until_ready(&mut server, ready, deadline)) {
        let stderr = server.last_words();
        give_up(server.reaper, isolated)?;
        let stderr = match stderr.trim() {
            "" => "its log is empty".to_string(),
            text => format!("its log: {text}"),
        };
        return Err(Error::verify(format!("{doing}: {error}; {stderr}")));
    }
    SERVERS.with(|all| all.borrow_mut().push(server));
    Ok(json!({"pid": pid, "ready_ns": begun.elapsed().as_nanos() as u64}))
}

fn started(reaper: &mut Reaper, deadline: Instant) -> Result<pid_t> {
    loop {
        match reaper.hear(PAUSE_MS)? {
            Some(ReaperMessage::Started(pid)) => return Ok(pid),
            Some(ReaperMessage::Refused(doing, 0)) => return Err(Error::verify(doing)),
            Some(ReaperMessage::Refused(doing, errno)) => {
                let doing = doing.rsplit_once(": ").map_or("", |(doing, _)| doing);
                return Err(Error::errno(doing, errno));
            }
            _ if Instant::now() > deadline => {
                return Err(Error::verify("it did not start in time"))
            }
            _ => {}
        }
    }
}

fn wait_until_ready(server: &mut Server, wanted: &Ready, deadline: Instant) -> Result<()> {
    loop {
        let is_ready = is_ready(wanted);
        server.listen(if is_ready { 0 } else { PAUSE_MS })?;
        if let Some(status) = server.ended {
            return Err(Error::verify(format!(
                "it {} before it was ready",
                how(status)
            )));
        }
        if is_ready {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::verify("it was not ready in time"));
        }
    }
}

/// Ask a server to end, wait for it, and clean up everything that is left of it.
pub fn stop(request: ServerStop, isolated: bool) -> Result<Value> {
    let limit = Limit::new(Some(request.timeout_s))?;
    let mut server = taken(&request.name)?;
    let begun = Instant::now();
    server.listen(0)?;
    let patience = Duration::from_secs_f64(limit.seconds().unwrap_or_default());
    if request.after_round {
        server.wait_for_round(begun + patience)?;
    }
    let died = server.ended.is_some();
    let mut ended = true;
    if !server.in_rounds {
        server.send(match request.signal {
            EndSignal::Term => Signal::TERM,
            EndSignal::Int => Signal::INT,
            EndSignal::Quit => Signal::QUIT,
        });
        ended = server.wait(begun + patience)?;
        if !ended {
            server.send(Signal::KILL);
            server.wait(Instant::now() + GONE_WITHIN)?;
        }
    }
    let stderr = server.last_words();
    let status = server.ended;
    let rounds = server.rounds.iter().map(|r| (r.start_ns, r.end_ns));
    let rounds: Vec<_> = rounds.collect();
    let left = give_up(server.reaper, isolated)?;
    Ok(json!({
        "exit": status.filter(|s| libc::WIFEXITED(*s)).map(|s| libc::WEXITSTATUS(s)),
        "signal": status.filter(|s| libc::WIFSIGNALED(*s)).map(|s| libc::WTERMSIG(s)),
        "died": died,
        "killed": !ended,
        "left": left,
        "rounds_ns": rounds,
        "stderr": stderr,
        "wall_ns": begun.elapsed().as_nanos() as u64,
    }))
}

/// Return whether a server runs, and its latest output.
pub fn status(request: OfServer) -> Result<Value> {
    SERVERS.with(|all| {
        let mut all = all.borrow_mut();
        let found = all.iter_mut().find(|server| server.name == request.name);
        let server = found.ok_or_else(|| unknown(&request.name))?;
        server.listen(0)?;
        Ok(json!({
            "pid": server.pid,
            "alive": server.ended.is_none(),
            "stderr": server.last_words(),
        }))
    })
}

/// Return a port that a server could listen on.
pub fn free_port(_: Nothing) -> Result<Value> {
    Ok(json!({"port": unused_port()?}))
}

/// Return what all servers have used up to now.
pub fn used() -> Vec<(String, Used)> {
    SERVERS.with(|all| {
        let all = all.borrow();
        all.iter()
            .map(|server| (server.name.clone(), Used::below(server.reaper.pid)))
            .collect()
    })
}

/// Return the answer's `servers`: what each has used in between.
pub fn between(before: &[(String, Used)], after: &[(String, Used)]) -> Map<String, Value> {
    before
        .iter()
        .zip(after)
        .map(|((name, before), (_, after))| (name.clone(), after.since(before)))
        .collect()
}

impl Server {
    /// Process what the reaper reports within this many milliseconds.
    fn listen(&mut self, wait_ms: c_int) -> Result<()> {
        let mut message = self.reaper.hear(wait_ms)?;
        while let Some(heard) = message {
            match heard {
                ReaperMessage::Ended(status) => self.ended = Some(status),
                ReaperMessage::Round(round, next) => self.count(round, next),
                _ => {}
            }
            message = self.reaper.hear(0)?;
        }
        Ok(())
    }

    fn count(&mut self, round: Round, next: Option<pid_t>) {
        self.rounds.push(round);
        self.pid = next.unwrap_or(0);
        // After the last round that is reported, the process is not known any more.
        let known = next.filter(|_| self.rounds.len() < MOST_ROUNDS);
        self.descriptor = known.and_then(|pid| process_descriptor(pid).ok());
    }

    /// Wait until a round has ended, or the server, or the deadline has passed.
    fn wait_for_round(&mut self, deadline: Instant) -> Result<()> {
        while self.rounds.is_empty() && self.ended.is_none() && Instant::now() < deadline {
            self.listen(PAUSE_MS)?;
        }
        Ok(())
    }

    /// Return whether the process has ended, even if the reaper has not reported it yet.
    fn has_ended(&self) -> bool {
        let descriptor = self.descriptor.as_ref();
        descriptor.is_some_and(|process| sys::is_ready(process, 0))
    }

    /// Wait for the end until the deadline. Returns whether it has ended.
    fn wait(&mut self, deadline: Instant) -> Result<bool> {
        while self.ended.is_none() && Instant::now() < deadline {
            self.listen(PAUSE_MS)?;
        }
        Ok(self.ended.is_some())
    }

    /// Send a signal through the pidfd, which cannot come to refer to another process.
    fn send(&self, signal: Signal) {
        if let Some(descriptor) = &self.descriptor {
            let _ = pidfd_send_signal(descriptor, signal);
        }
    }

    fn size_of_log(&self) -> u64 {
        rustix::fs::seek(&self.log, SeekFrom::End(0)).unwrap_or(0)
    }

    fn last_words(&self) -> String {
        let from = self.size_of_log().saturating_sub(LAST_WORDS as u64);
        let mut text = vec![0_u8; LAST_WORDS];
        let n = rustix::io::pread(&self.log, &mut text, from).unwrap_or(0);
        String::from_utf8_lossy(&text[..n]).into_owned()
    }

    /// Truncate a log that has grown large. It is opened for appending, so that no hole remains.
    fn forget_much(&self) -> Result<()> {
        if self.size_of_log() > MOST_SAID {
            rustix::fs::ftruncate(&self.log, 0).doing(|| "empty a server's log".to_string())?;
        }
        Ok(())
    }
}

/// End a reaper and everything that is left below it. Returns the number of processes killed.
fn give_up(reaper: Reaper, isolated: bool) -> Result<u64> {
    let pid = reaper.pid;
    reaper.end();
    stragglers::release(pid);
    stragglers::sweep(isolated, true)
}

fn taken(name: &str) -> Result<Server> {
    SERVERS.with(|all| {
        let mut all = all.borrow_mut();
        let at = all.iter().position(|server| server.name == name);
        at.map(|at| all.remove(at)).ok_or_else(|| unknown(name))
    })
}

fn unknown(name: &str) -> Error {
    Error::bad(format!("no server named {name:?} is running"))
}

fn append_only(log: &OwnedFd) -> Result<()> {
    fcntl_setfl(log, OFlags::APPEND).doing(|| "set up a server's log")
}

/// Describe how it ended, by its wait status.
fn how(status: c_int) -> String {
    if libc::WIFSIGNALED(status) {
        format!("was ended by signal {}", libc::WTERMSIG(status))
    } else {
        format!("ended with status {}", libc::WEXITSTATUS(status))
    }
}

// Readiness checks: the server accepts a connection, or a file shows that it is ready.

/// On this machine a connection is accepted or refused at once.
const PATIENCE: Duration = Duration::from_millis(100);

/// Check that exactly one way is requested; `bad_request` otherwise.
pub fn check(wanted: &Ready) -> Result<()> {
    let port = match wanted.tcp {
        Some(port) => u16::try_from(port).ok().filter(|port| *port > 0).map(|_| 1),
        None => Some(0),
    };
    let ways =
        port.map(|tcp| tcp + u32::from(wanted.socket.is_some()) + u32::from(wanted.file.is_some()));
    match ways {
        Some(1) if wanted.contains.is_none() || wanted.file.is_some() => Ok(()),
        _ => Err(Error::bad(
            "request server_start: ready: expected exactly one of tcp (a port from 1 to 65535), socket and file (with contains)",
        )),
    }
}

pub fn is_ready(wanted: &Ready) -> bool {
    match (wanted.tcp, &wanted.socket, &wanted.file) {
        (Some(port), _, _) => {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port as u16));
            TcpStream::connect_timeout(&address, PATIENCE).is_ok()
        }
        (_, Some(path), _) => UnixStream::connect(path).is_ok(),
        (_, _, Some(path)) => {
            let text = std::fs::read(path);
            let wanted = wanted.contains.as_deref().unwrap_or_default();
            text.is_ok_and(|text| String::from_utf8_lossy(&text).contains(wanted))
        }
        _ => false,
    }
}

/// Find a loopback port that nothing listens on at the moment.
fn unused_port() -> Result<u16> {
    let doing = || "find a free port on 127.0.0.1";
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing(doing)?;
    Ok(listener.local_addr().doing(doing)?.port())
}

#[cfg(test)]
mod ready_tests {
    use super::*;

    fn nothing() -> Ready {
        Ready {
            tcp: None,
            socket: None,
            file: None,
            contains: None,
        }
    }

    #[test]
    fn one_way_is_asked_for_and_no_more() {
        assert!(check(&nothing()).is_err());
        let one = |port| Ready {
            tcp: Some(port),
            ..nothing()
        };
        assert!(check(&one(80)).is_ok());
        assert!(check(&one(0)).is_err());
        assert!(check(&one(65_536)).is_err());
        let two = Ready {
            socket: Some("/s".to_string()),
            ..one(80)
        };
        assert!(check(&two).is_err());
        let no_file = Ready {
            contains: Some("x".to_string()),
            ..one(80)
        };
        assert!(check(&no_file).is_err());
    }

    #[test]
    fn a_port_that_is_listened_on_is_ready() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let wanted = Ready {
            tcp: Some(u32::from(port)),
            ..nothing()
        };
        assert!(is_ready(&wanted));
        drop(listener);
        assert!(!is_ready(&wanted));
    }
}
