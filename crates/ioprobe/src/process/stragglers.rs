//! Ends what a command left behind: background processes, daemons that left its group, orphans.
//!
//! A leftover process would keep reading and writing during the next run. All of them become our
//! children (as process 1 of the namespace, or as the subreaper), so "no children left" is the
//! proof. Usually one wait4 shows it. The reapers of servers stay (`kept`), and the processes below
//! them have another reaper. While there are any, children are looked up in /proc and waited for by
//! pid.

use std::cell::RefCell;
use std::fs;

use libc::{c_int, pid_t};

use crate::error::{Error, Result};
use crate::sys;

/// Kill and reap every descendant. Returns how many had to be killed. `shot`: the group was killed
/// already, so those that die of that now count too.
pub fn sweep(isolated: bool, mut shot: bool) -> Result<u64> {
    let kept = kept();
    if !kept.is_empty() {
        return sweep_except(&kept, shot);
    }
    let mut killed = 0;
    let mut count = |status, shot| killed += u64::from(shot && was_killed(status));
    loop {
        // Those that ended by themselves only need to be reaped.
        match reap(-1, libc::WNOHANG)? {
            Reaped::One(status) => count(status, shot),
            Reaped::None => return Ok(killed),
            Reaped::StillRunning => {
                if isolated {
                    // SAFETY: no pointers are involved. From process 1 of a PID namespace, -1 means
                    // everything else in it.
                    unsafe { libc::kill(-1, libc::SIGKILL) };
                } else {
                    kill_children()?;
                }
                shot = true;
                if let Reaped::One(status) = reap(-1, 0)? {
                    count(status, shot);
                }
            }
        }
    }
}

/// Like `sweep`, for all children except those that stay. When one dies its children become ours,
/// and the next round finds them.
fn sweep_except(kept: &[pid_t], shot: bool) -> Result<u64> {
    let mut killed = 0;
    loop {
        let children: Vec<pid_t> = (children().into_iter())
            .filter(|pid| !kept.contains(pid))
            .collect();
        if children.is_empty() {
            return Ok(killed);
        }
        for pid in children {
            let (status, shot) = match reap(pid, libc::WNOHANG)? {
                Reaped::StillRunning => {
                    kill(pid)?;
                    (reap(pid, 0)?, true)
                }
                ended => (ended, shot),
            };
            if let Reaped::One(status) = status {
                killed += u64::from(shot && was_killed(status));
            }
        }
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

/// Kill our children. When they die, their children become ours, and the next round finds them.
fn kill_children() -> Result<()> {
    let mut refused = Ok(());
    for pid in children() {
        refused = refused.and(kill(pid));
    }
    refused
}

fn kill(pid: pid_t) -> Result<()> {
    let doing = || format!("kill process {pid} that a command left behind");
    sys::kill(pid).map_err(|errno| Error::errno(doing(), errno))
}

/// Return our children. The kernel's list of them is read in microseconds: a chain of processes, of
/// which each starts the next and ends, is quicker than a walk through /proc, which serves kernels
/// without the list.
fn children() -> Vec<pid_t> {
    let own = std::process::id() as pid_t;
    let listed = fs::read_to_string(format!("/proc/self/task/{own}/children")).unwrap_or_default();
    let found: Vec<pid_t> = (listed.split_whitespace())
        .filter_map(|pid| pid.parse().ok())
        .collect();
    if !found.is_empty() {
        return found;
    }
    // None of this thread, or no list.
    processes()
        .filter(|pid| parent_of(*pid) == Some(own))
        .collect()
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
