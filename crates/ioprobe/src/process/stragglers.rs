//! Ends what a command left behind: background processes, daemons that left its group, orphans.
//!
//! A leftover process would keep reading and writing during the next run. All of them become our
//! children (as process 1 of the namespace, or as the subreaper), so "no children left" is the
//! proof. Usually one wait4 shows it. The reapers of servers stay (`kept`), and the processes below
//! them have another reaper. While there are any, children are looked up in /proc and waited for by
//! pid.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t};
use rustix::io::Errno;
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use crate::error::{Error, Result};
use crate::process::orphans::started;
use crate::sys;

/// How long children are killed round after round. What goes on after that starts processes faster
/// than a round ends them (a fork bomb): then everything below is stopped before it is killed.
const PATIENCE: Duration = Duration::from_millis(200);

/// Kill and reap every descendant. Returns how many had to be killed. `shot`: the group was killed
/// already, so those that die of that now count too.
pub fn sweep(isolated: bool, mut shot: bool) -> Result<u64> {
    let kept = kept();
    if !kept.is_empty() {
        return sweep_except(&kept, shot);
    }
    let mut killed = 0;
    let mut count = |status, shot| killed += u64::from(shot && was_killed(status));
    let mut since = Instant::now();
    let mut hurry = None;
    loop {
        // Those that ended by themselves only need to be reaped.
        let reaped = reap(-1, libc::WNOHANG)?;
        // Of those that start others and end there may always be one more to reap.
        let late = since.elapsed() > PATIENCE;
        match reaped {
            Reaped::None => return Ok(killed),
            Reaped::One(status) => {
                count(status, shot);
                if !late {
                    continue;
                }
            }
            Reaped::StillRunning => {}
        }
        shot = true;
        hurry.get_or_insert_with(Hurry::begin);
        if isolated {
            // SAFETY: no pointers are involved. From process 1 of a PID namespace, -1 means
            // everything else in it.
            unsafe { libc::kill(-1, libc::SIGKILL) };
            since = Instant::now();
        } else if late {
            for status in end_all_below(&[])? {
                count(status, shot);
            }
            continue;
        } else {
            kill_children()?;
        }
        if let Reaped::One(status) = reap_until(-1, since + PATIENCE)? {
            count(status, shot);
        }
    }
}

/// Like `sweep`, for all children except those that stay. When one dies its children become ours,
/// and the next round finds them.
fn sweep_except(kept: &[pid_t], shot: bool) -> Result<u64> {
    let mut killed = 0;
    let since = Instant::now();
    let mut hurry = None;
    loop {
        let own = std::process::id() as pid_t;
        if listed_children(own).iter().any(|pid| !kept.contains(pid)) {
            hurry.get_or_insert_with(Hurry::begin);
        }
        if since.elapsed() > PATIENCE {
            let ended = end_all_below(kept)?;
            killed += ended.into_iter().filter(|s| was_killed(*s)).count() as u64;
        }
        let children: Vec<pid_t> = children().filter(|pid| !kept.contains(pid)).collect();
        if children.is_empty() {
            return Ok(killed);
        }
        for pid in children {
            let (status, shot) = match reap(pid, libc::WNOHANG)? {
                Reaped::StillRunning => {
                    kill(pid)?;
                    (reap_until(pid, since + PATIENCE)?, true)
                }
                ended => (ended, shot),
            };
            if let Reaped::One(status) = status {
                killed += u64::from(shot && was_killed(status));
            }
        }
    }
}

/// Kill everything that a command has started, and reap nothing. After a time limit: among many
/// processes that start others all the time, the death of the command itself may take minutes.
pub fn shoot(isolated: bool) -> Result<()> {
    let kept = kept();
    let _hurry = Hurry::begin();
    if isolated && kept.is_empty() {
        // SAFETY: as in `sweep`.
        unsafe { libc::kill(-1, libc::SIGKILL) };
        return Ok(());
    }
    kill_all_below(&kept).map(drop)
}

/// Kill everything below this process, except for children that stay and what is below them.
/// Returns the wait statuses of what has ended by then.
fn end_all_below(kept: &[pid_t]) -> Result<Vec<c_int>> {
    // Parents come first, so that each is our child when it is its turn, or soon after.
    let mut left = kill_all_below(kept)?;
    let mut statuses = Vec::new();
    for _ in 0..100 {
        let mut running = Vec::new();
        for pid in left {
            match reap(pid, libc::WNOHANG)? {
                Reaped::One(status) => statuses.push(status),
                Reaped::StillRunning => running.push(pid),
                Reaped::None => {}
            }
        }
        if running.is_empty() {
            break;
        }
        left = running;
        sleep(Duration::from_millis(1));
    }
    Ok(statuses)
}

/// Stop everything below this process, except for children that stay and what is below them, so
/// that it cannot start anything; then kill it. Returns the pids, parents first.
fn kill_all_below(kept: &[pid_t]) -> Result<Vec<pid_t>> {
    let own = std::process::id() as pid_t;
    let mut found: Vec<Below> = Vec::new();
    let mut known = HashSet::new();
    // Until a whole pass finds nothing new: what was starting a process has started it by then.
    let mut before = None;
    while before != Some(found.len()) {
        before = Some(found.len());
        let mut at = 0;
        let mut parent = own;
        loop {
            let skipped: &[pid_t] = if parent == own { kept } else { &[] };
            for child in listed_children(parent) {
                if !skipped.contains(&child) {
                    if let Some(below) = Below::stop(child, parent) {
                        if known.insert((below.pid, below.started)) {
                            found.push(below);
                        }
                    }
                }
            }
            match found.get(at) {
                None => break,
                Some(next) => parent = next.pid,
            }
            at += 1;
        }
    }
    for below in &found {
        below.kill()?;
    }
    Ok(found.iter().map(|below| below.pid).collect())
}

/// A process below this one. Its parent is stopped and reaps nothing, or is this process, so that its
/// number stays its own; in any case it is known by its start time too.
struct Below {
    pid: pid_t,
    started: u64,
}

impl Below {
    /// Stop a child of `parent`. None if it is gone, or another process has its number.
    fn stop(pid: pid_t, parent: pid_t) -> Option<Self> {
        let held = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let (its_parent, started) = (parent_of(pid)?, started(pid)?);
        if its_parent != parent {
            return None;
        }
        // If it can be reached now, it was this process that was read about.
        pidfd_send_signal(held, Signal::STOP).ok()?;
        Some(Below { pid, started })
    }

    fn kill(&self) -> Result<()> {
        let held = match Pid::from_raw(self.pid).map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            Some(Ok(held)) if started(self.pid) == Some(self.started) => held,
            _ => return Ok(()),
        };
        match pidfd_send_signal(held, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(errno) => Err(not_killed(self.pid, errno.raw_os_error())),
        }
    }
}

/// Return the children of a process, of all its threads. The kernel's list may lack some while
/// others end (proc(5)).
fn listed_children(parent: pid_t) -> Vec<pid_t> {
    let mut found = Vec::new();
    let mut listed = false;
    let threads = fs::read_dir(format!("/proc/{parent}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        if let Ok(text) = fs::read_to_string(thread.path().join("children")) {
            listed = true;
            found.extend(
                text.split_whitespace()
                    .filter_map(|pid| pid.parse::<pid_t>().ok()),
            );
        }
    }
    // A kernel without CONFIG_PROC_CHILDREN.
    if !listed {
        found.extend(processes().filter(|pid| parent_of(*pid) == Some(parent)));
    }
    found
}

/// Goes before all others while it lives, where this process may: among thousands of processes that
/// run all the time, its own share would be too small.
struct Hurry {
    policy: c_int,
    parameters: libc::sched_param,
}

impl Hurry {
    fn begin() -> Option<Self> {
        // SAFETY: we own the structures; 0 means this thread.
        unsafe {
            let mut parameters: libc::sched_param = std::mem::zeroed();
            let policy = libc::sched_getscheduler(0);
            let usual = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE].contains(&policy);
            if !usual || libc::sched_getparam(0, &mut parameters) != 0 {
                return None;
            }
            let first = libc::sched_param { sched_priority: 1 };
            let may = libc::sched_setscheduler(0, libc::SCHED_RR, &first) == 0;
            may.then_some(Hurry { policy, parameters })
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { libc::sched_setscheduler(0, self.policy, &self.parameters) };
    }
}

fn was_killed(status: c_int) -> bool {
    libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL
}

enum Reaped {
    One(c_int),
    StillRunning,
    None,
}

fn reap(pid: pid_t, flags: c_int) -> Result<Reaped> {
    match sys::wait(pid, flags | libc::__WALL) {
        Ok(Some((_, status))) => Ok(Reaped::One(status)),
        Ok(None) => Ok(Reaped::StillRunning),
        Err(libc::ECHILD) => Ok(Reaped::None),
        Err(errno) => Err(Error::errno("wait for processes left behind", errno)),
    }
}

/// Wait for a process that was killed, which may take long among thousands that run all the time.
fn reap_until(pid: pid_t, until: Instant) -> Result<Reaped> {
    let mut pause = Duration::from_micros(50);
    loop {
        let reaped = reap(pid, libc::WNOHANG)?;
        if !matches!(reaped, Reaped::StillRunning) || Instant::now() > until {
            return Ok(reaped);
        }
        sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(5));
    }
}

/// Kill our children. When they die, their children become ours, and the next round finds them.
fn kill_children() -> Result<()> {
    let mut refused = Ok(());
    for pid in some_children() {
        refused = refused.and(kill(pid));
    }
    refused
}

fn kill(pid: pid_t) -> Result<()> {
    sys::kill(pid).map_err(|errno| not_killed(pid, errno))
}

fn not_killed(pid: pid_t, errno: i32) -> Error {
    let doing = format!("kill process {pid} that a command left behind");
    Error::errno(doing, errno)
}

/// Return our children, or some of them, in microseconds: quicker than a chain of processes, of
/// which each starts the next and ends. The kernel's list may lack one while others end (proc(5)),
/// so it is no proof that there is none.
fn some_children() -> Vec<pid_t> {
    let own = std::process::id() as pid_t;
    let listed = fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    let found: Vec<pid_t> = (listed.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect();
    match found.is_empty() {
        false => found,
        true => children().collect(),
    }
}

fn children() -> impl Iterator<Item = pid_t> {
    let own = std::process::id() as pid_t;
    processes().filter(move |pid| parent_of(*pid) == Some(own))
}

pub fn processes() -> impl Iterator<Item = pid_t> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_of(pid: pid_t) -> Option<pid_t> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parent_in_stat(&String::from_utf8_lossy(&bytes))
}

/// Parse the parent's pid. The name in parentheses may contain parentheses, so parsing starts after
/// the last one.
pub fn parent_in_stat(text: &str) -> Option<pid_t> {
    text.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

// Children of the probe that stay, by pid. Sweeps skip them.

thread_local! {
    static KEPT: RefCell<Vec<pid_t>> = const { RefCell::new(Vec::new()) };
}

/// Exempt a child from sweeps.
pub fn keep(pid: pid_t) {
    KEPT.with(|kept| kept.borrow_mut().push(pid));
}

/// Make a child subject to sweeps again.
pub fn release(pid: pid_t) {
    KEPT.with(|kept| kept.borrow_mut().retain(|other| *other != pid));
}

/// Return the children exempt from sweeps.
pub fn kept() -> Vec<pid_t> {
    KEPT.with(|kept| kept.borrow().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_behind_any_name() {
        assert_eq!(parent_in_stat("12 (sh) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in_stat("12 (a ) S 3 (b) R 8 1 1"), Some(8));
        assert_eq!(parent_in_stat("nonsense"), None);
    }
}
