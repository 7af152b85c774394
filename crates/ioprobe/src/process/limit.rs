//! A timeout at no cost to the timed part: an interval timer's signal kills the running
//! command.
//!
//! The probe waits in wait4 and wakes as soon as the command ends, with or without a timeout. There
//! is no second thread: with threads, every change of user would have to cover all of them, and
//! every fork would be a risk.

use rustix::process::{kill_process, kill_process_group, Pid, Signal};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::SeqCst};

use libc::{c_int, pid_t, suseconds_t, time_t};

use crate::error::{Error, Result};
use crate::sys::check;

static RUNNING: AtomicI32 = AtomicI32::new(0);
static EXPIRED: AtomicBool = AtomicBool::new(false);

/// Seconds, checked to be a valid timer value.
#[derive(Clone, Copy, Debug)]
pub struct Limit(Option<f64>);

impl Limit {
    pub fn new(seconds: Option<f64>) -> Result<Self> {
        match seconds {
            Some(s) if !(s.is_finite() && (0.001..=1e8).contains(&s)) => Err(Error::bad(format!(
                "timeout_s: expected between 0.001 and 1e8, found {s}"
            ))),
            _ => Ok(Limit(seconds)),
        }
    }

    pub fn seconds(self) -> Option<f64> {
        self.0
    }

    /// Start the timer. Call this before starting the command, so that the cost is not in the timed
    /// part.
    pub fn arm(self) {
        RUNNING.store(0, SeqCst);
        EXPIRED.store(false, SeqCst);
        if let Some(seconds) = self.0 {
            set_timer(seconds);
        }
    }

    /// Set the process group that the timeout kills.
    pub fn guard(self, pid: pid_t) {
        RUNNING.store(pid, SeqCst);
        if EXPIRED.load(SeqCst) {
            kill_group(pid);
        }
    }

    /// Return whether the timer has expired since it was started.
    pub fn has_expired(self) -> bool {
        EXPIRED.load(SeqCst)
    }

    /// Stop the timer. Returns whether it had expired.
    pub fn disarm(self) -> bool {
        RUNNING.store(0, SeqCst);
        if self.0.is_some() {
            set_timer(0.0);
        }
        EXPIRED.load(SeqCst)
    }
}

/// Install the handler, once. The kernel does not restart wait4 after it; the caller does. Also
/// undoes what the parent may have passed on: with SIGALRM blocked there would be no timeout, and
/// with SIGCHLD ignored no child could be waited for.
pub fn install() -> Result<()> {
    // SAFETY: the handler only makes async-signal-safe calls.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = expired as extern "C" fn(c_int) as usize;
        libc::sigemptyset(&mut action.sa_mask);
        check(
            libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()),
            || "install the handler of time limits".to_string(),
        )?;
    }
    Ok(())
}

extern "C" fn expired(_: c_int) {
    EXPIRED.store(true, SeqCst);
    let pid = RUNNING.load(SeqCst);
    if pid > 0 {
        kill_group(pid);
    }
}

/// Kill a process group, and its leader by pid too: it may have moved to another group.
pub fn kill_group(pid: pid_t) {
    if let Some(process) = Pid::from_raw(pid) {
        let _ = kill_process_group(process, Signal::KILL);
        let _ = kill_process(process, Signal::KILL);
    }
}

fn set_timer(seconds: f64) {
    let timer = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: seconds.trunc() as time_t,
            tv_usec: (seconds.fract() * 1e6) as suseconds_t,
        },
    };
    // SAFETY: we own the structure; a valid time cannot be refused.
    unsafe {
        libc::syscall(
            libc::SYS_setitimer,
            libc::ITIMER_REAL,
            &timer,
            std::ptr::null_mut::<libc::itimerval>(),
        )
    };
}
