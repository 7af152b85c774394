//! Ends what is left of an earlier probe's session.
//!
//! While the session leader lives, the session's number and the leader's start time identify its
//! processes. Without the leader the number may have been reused by strangers. Then, and for
//! processes that have left the session, only a token in their environment identifies them.

use rustix::process::{pidfd_send_signal, Signal};
use std::fs;
use std::thread::sleep;
use std::time::Duration;

use libc::pid_t;
use serde_json::{json, Value};

use crate::error::{Error, Result};
use crate::process::program::TOKEN;
use crate::protocol::EndSession;
use crate::sys::process_descriptor;

const ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(5);

/// The fields of /proc/PID/stat that are needed here (proc_pid_stat(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: pid_t,
    name: String,
    state: char,
    session: pid_t,
    started: u64,
}

/// Kill every process of a session until none is left. Returns how many there were, and which are
/// still left.
pub fn end_session(request: EndSession, isolated: bool) -> Result<Value> {
    if isolated {
        return Err(Error::unsupported(
            "end_session: the probe must see all processes, but runs in its own PID namespace",
        ));
    }
    let mut killed = std::collections::BTreeSet::new();
    let mut left = Vec::new();
    for _ in 0..ATTEMPTS {
        let all = processes();
        let token = request.token.as_deref();
        left = members(&all, request.session, request.started, |pid| {
            carries(pid, token)
        });
        let dying: Vec<Process> = all
            .into_iter()
            .filter(|p| p.session == request.session && is_dying(p))
            .collect();
        if left.is_empty() && dying.is_empty() {
            break;
        }
        let ours = left.clone();
        left.extend(dying);
        for process in &ours {
            if kill(process) {
                killed.insert(process.pid);
            }
        }
        sleep(PAUSE);
    }
    let left: Vec<Value> = left
        .iter()
        .map(|p| json!({"pid": p.pid, "name": p.name, "state": p.state.to_string()}))
        .collect();
    Ok(json!({"killed": killed.len(), "left": left}))
}

/// Return when a process started, in clock ticks since boot.
pub fn started(pid: pid_t) -> Option<u64> {
    read(pid).map(|process| process.started)
}

/// Return the living processes that are ours: those of the session while its own leader lives, and
/// all that carry the token.
fn members(
    all: &[Process],
    session: pid_t,
    started: u64,
    carries_token: impl Fn(pid_t) -> bool,
) -> Vec<Process> {
    let alive = |p: &&Process| !matches!(p.state, 'Z' | 'X' | 'x');
    let led = all
        .iter()
        .any(|p| p.pid == session && p.started == started && alive(&p));
    let ours =
        |p: &&Process| (led && (p.session == session || p.pid == session)) || carries_token(p.pid);
    all.iter().filter(alive).filter(ours).cloned().collect()
}

/// Return whether a process has released its memory, and with it its environment, but not yet its
/// files and mounts. It is waited for, because what it holds (such as an image's space) is not free
/// before. Who started it can no longer be determined, and does not matter.
fn is_dying(process: &Process) -> bool {
    !matches!(process.state, 'Z' | 'X' | 'x')
        && fs::read(format!("/proc/{}/environ", process.pid))
            .is_ok_and(|environment| environment.is_empty())
}

/// Return whether the token is in the environment with which a process was started.
fn carries(pid: pid_t, token: Option<&str>) -> bool {
    let wanted = match token {
        Some(token) if !token.is_empty() => format!("{TOKEN}={token}"),
        _ => return false,
    };
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
        environment
            .split(|byte| *byte == 0)
            .any(|word| word == wanted.as_bytes())
    })
}

/// Send SIGKILL through a pidfd, which cannot come to refer to another process.
fn kill(process: &Process) -> bool {
    let descriptor = match process_descriptor(process.pid) {
        Ok(descriptor) => descriptor,
        Err(_) => return false,
    };
    let same = read(process.pid).is_some_and(|now| now.started == process.started);
    same && pidfd_send_signal(&descriptor, Signal::KILL).is_ok()
}

fn processes() -> Vec<Process> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

fn read(pid: pid_t) -> Option<Process> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &String::from_utf8_lossy(&bytes))
}

/// Parse a stat line. The name in parentheses may contain parentheses, so parsing starts after the
/// last one.
fn parse(pid: pid_t, text: &str) -> Option<Process> {
    let (front, back) = text.rsplit_once(')')?;
    let fields: Vec<&str> = back.split_whitespace().collect();
    Some(Process {
        pid,
        name: front.split_once('(')?.1.to_string(),
        state: fields.first()?.chars().next()?,
        session: fields.get(3)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "7 (a ) S (b) S 1 7 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1 2 3";

    fn process(pid: pid_t, session: pid_t, started: u64, state: char) -> Process {
        Process {
            pid,
            name: "x".to_string(),
            state,
            session,
            started,
        }
    }

    #[test]
    fn a_line_is_read_behind_any_name() {
        let found = parse(7, LINE).unwrap();
        assert_eq!(found.name, "a ) S (b");
        assert_eq!((found.state, found.session, found.started), ('S', 5, 4242));
        assert_eq!(parse(7, "7 (x) S 1"), None);
        assert_eq!(parse(7, ""), None);
    }

    #[test]
    fn the_leader_and_all_that_stayed_in_its_session_are_members() {
        let all = [
            process(5, 5, 100, 'S'),
            process(6, 5, 120, 'D'),
            process(7, 5, 130, 'Z'),
            process(8, 4, 90, 'S'),
        ];
        let pids = |found: Vec<Process>| found.iter().map(|p| p.pid).collect::<Vec<_>>();
        assert_eq!(pids(members(&all, 5, 100, |_| false)), [5, 6]);
    }

    #[test]
    fn without_the_leader_only_the_token_tells() {
        let all = [
            process(6, 5, 120, 'S'),
            process(7, 7, 130, 'S'),
            process(8, 5, 90, 'S'),
        ];
        let pids = |found: Vec<Process>| found.iter().map(|p| p.pid).collect::<Vec<_>>();
        assert!(members(&all, 5, 100, |_| false).is_empty());
        assert_eq!(pids(members(&all, 5, 100, |pid| pid < 8)), [6, 7]);
    }

    #[test]
    fn a_number_that_another_leader_has_by_now_is_left_alone() {
        let all = [process(5, 5, 999, 'S'), process(6, 5, 1000, 'S')];
        assert!(members(&all, 5, 100, |_| false).is_empty());
    }

    #[test]
    fn a_process_that_took_over_a_number_lives_on() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let mut found = read(child.id() as pid_t).unwrap();
        found.started -= 1;
        assert!(!kill(&found));
        assert!(child.try_wait().unwrap().is_none());
        found.started += 1;
        assert!(kill(&found));
        assert!(!child.wait().unwrap().success());
    }
}
