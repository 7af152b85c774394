//! Ensures that the probe dies with its parent, along with everything it started: parent-death
//! signal and namespaces.
//!
//! With `--isolate` the probe is process 1 of a PID namespace and has its own mount namespace. When
//! it dies, for whatever reason, the kernel kills every process in the one and removes every mount
//! in the other; loop devices clear themselves after their last mount. So SIGKILL needs no
//! clean-up.

use std::os::unix::io::OwnedFd;
use std::process::exit;

use libc::{c_int, c_ulong, pid_t};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::mount::{mount, mount_change, MountFlags, MountPropagationFlags};
use rustix::process::{
    geteuid, getpid, getppid, set_child_subreaper, set_parent_process_death_signal, setsid, Pid,
    Signal,
};
use rustix::thread::{unshare_unsafe, UnshareFlags};
use rustix::time::Timespec;

use crate::broker::{self, Broker};
use crate::error::{Doing, Error, Result};
use crate::sys::{self, check};

/// How the probe knows that its parent still lives. The kernel clears the parent-death signal when
/// a process changes its user (prctl(2), PR_SET_PDEATHSIG), so it is set again after each change.
pub enum Lifeline {
    /// The parent's pid, which getppid() returns while it lives.
    Parent(Pid),
    /// A pipe to which only the outer process has the write end: its pid is not visible inside the
    /// namespace.
    Pipe(OwnedFd),
}

impl Lifeline {
    /// Tie this process to its current parent.
    pub fn to_parent() -> Self {
        // Process 1 has no parent.
        let lifeline = Lifeline::Parent(getppid().unwrap_or(Pid::INIT));
        lifeline.tie();
        lifeline
    }

    /// Request SIGKILL at the parent's death; exit at once if the parent is already dead.
    pub fn tie(&self) {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        if !self.parent_lives() {
            exit(128 + libc::SIGKILL);
        }
    }

    fn parent_lives(&self) -> bool {
        match self {
            Lifeline::Parent(pid) => getppid().unwrap_or(Pid::INIT) == *pid,
            // No event is requested: the only one that can occur is that the other end was closed.
            Lifeline::Pipe(reading) => {
                let mut polled = [PollFd::new(reading, PollFlags::empty())];
                poll(&mut polled, Some(&Timespec::default())) == Ok(0)
            }
        }
    }
}

/// Move to private namespaces. Returns in the inner process only; the outer one waits for it and
/// exits with its status. `of_guest`: mounts need not be hidden from anyone, and the kernel's own
/// servers look for them in the original namespace.
pub fn enter(of_guest: bool) -> Result<(Lifeline, Broker)> {
    let (broker, outer) = broker::prepare()?;
    // SAFETY: the process has one thread, and no descriptors or folders are unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWPID) }
        .doing(|| "unshare mount and PID namespaces")?;
    let (reading, writing) = sys::pipe()?;
    // SAFETY: the process has one thread, so the child can go on like the parent.
    match check(unsafe { libc::fork() }, || "fork".to_string())? {
        0 => {
            drop(writing);
            let lifeline = Lifeline::Pipe(reading);
            lifeline.tie();
            drop(outer);
            if !of_guest {
                make_mounts_private()?;
            }
            mount_own_proc()?;
            Ok((lifeline, broker))
        }
        inner => {
            drop(broker);
            outer.keep_until_end(inner);
            let status = wait_for(inner);
            drop(writing);
            pass_on(status)
        }
    }
}

/// Make all mounts private: ours do not reach the host, and the host's changes do not reach us.
fn make_mounts_private() -> Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).doing(|| "make all mounts private")
}

/// Mount a /proc that shows our own processes.
fn mount_own_proc() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).doing(|| "mount a fresh /proc")
}

fn wait_for(pid: pid_t) -> c_int {
    loop {
        if let Ok(Some((_, status))) = sys::wait(pid, 0) {
            return status;
        }
    }
}

fn pass_on(status: c_int) -> ! {
    if libc::WIFSIGNALED(status) {
        exit(128 + libc::WTERMSIG(status))
    }
    exit(libc::WEXITSTATUS(status))
}

/// The session of the probe and all it starts, as the host sees it, by which a later process finds
/// leftovers. Also the host's /proc, opened before the probe moved to a namespace where it
/// sees only its own processes.
pub struct Origin {
    pub session: pid_t,
    pub started: u64,
    pub proc: OwnedFd,
}

impl Origin {
    pub fn here() -> Result<Self> {
        // If started by hand from a shell, the session is the shell's and not ours to end: then
        // only this process.
        let leader = getpid().as_raw_nonzero().get();
        let started = crate::process::orphans::started(leader).ok_or_else(|| {
            Error::verify(format!("read /proc/{leader}/stat: found no start time"))
        })?;
        Ok(Origin {
            session: leader,
            started,
            proc: crate::sys::open("/proc", libc::O_PATH | libc::O_DIRECTORY, 0)?,
        })
    }
}

/// Continue in a child, below a guard that outlives both the child and the conductor for as long as
/// it takes to end what commands have left running. Without a PID namespace the kernel would end
/// only direct children.
pub fn under_guard(outer: Lifeline) -> Result<Lifeline> {
    adopt_orphans()?;
    let guard = getpid();
    // SAFETY: the process has one thread, so the child can go on like the parent.
    match check(unsafe { libc::fork() }, || "fork".to_string())? {
        0 => {
            adopt_orphans()?;
            let lifeline = Lifeline::Parent(guard);
            lifeline.tie();
            Ok(lifeline)
        }
        inner => guard_of(inner, &outer),
    }
}

/// Wait for the inner process or for the conductor's death, then end everything below.
fn guard_of(inner: pid_t, outer: &Lifeline) -> ! {
    // SAFETY: we own the set; the signals waited for are blocked, so none is lost between the
    // checks.
    let status = unsafe {
        let mut wanted: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut wanted);
        libc::sigaddset(&mut wanted, libc::SIGCHLD);
        libc::sigaddset(&mut wanted, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_BLOCK, &wanted, std::ptr::null_mut());
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as c_ulong);
        loop {
            let mut status = 0;
            match libc::waitpid(inner, &mut status, libc::WNOHANG) {
                0 => {}
                -1 if crate::error::last_errno() == libc::EINTR => {}
                _ => break status,
            }
            if !outer.parent_lives() {
                libc::kill(inner, libc::SIGKILL);
                libc::waitpid(inner, &mut status, 0);
                break status;
            }
            let mut found: libc::siginfo_t = std::mem::zeroed();
            if libc::sigwaitinfo(&wanted, &mut found) == libc::SIGTERM {
                libc::kill(inner, libc::SIGKILL);
            }
        }
    };
    // At the inner process's death, orphans of commands have become our children.
    if let Err(error) = crate::process::stragglers::sweep(false, true) {
        eprintln!("ioprobe: {error}");
    }
    pass_on(status)
}

/// Become a subreaper: orphans of commands become our children instead of those of the system's
/// process 1, so that they can be found and ended.
pub fn adopt_orphans() -> Result<()> {
    set_child_subreaper(Some(getpid())).doing(|| "become the subreaper")
}

/// Leave the terminal's process group: after Ctrl-C the conductor still needs the probe to restore
/// things.
pub fn leave_terminal() {
    // Fails for a group leader (started by hand), which then still receives Ctrl-C.
    let _ = setsid();
}

/// Drop terminal signals that arrived before `leave_terminal`, and unblock them from now on.
///
/// The conductor blocks them while it starts the probe, so that a Ctrl-C meant for the conductor
/// does not end the probe.
pub fn drop_signals_of_terminal() {
    // SAFETY: we own the set; no handler is installed. Ignoring a signal discards a pending one.
    unsafe {
        let mut these: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut these);
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGHUP] {
            let before = libc::signal(signal, libc::SIG_IGN);
            libc::signal(signal, before);
            libc::sigaddset(&mut these, signal);
        }
        libc::sigprocmask(libc::SIG_UNBLOCK, &these, std::ptr::null_mut());
    }
}

/// Tie a forked child to its parent: the kernel kills it when the parent dies.
pub fn end_with(parent: Pid) {
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    if tied.is_err() || getppid() != Some(parent) {
        exit(0);
    }
}

/// Return whether mounts and loop devices are permitted: CAP_SYS_ADMIN is effective.
pub fn privileged() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| {
            let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// Fail early, with a clear message, if root is needed and missing.
pub fn require_privilege(doing: &str) -> Result<()> {
    if privileged() {
        Ok(())
    } else {
        Err(Error::unsupported(format!(
            "{doing}: needs root (CAP_SYS_ADMIN), but the probe runs as uid {}",
            geteuid().as_raw()
        )))
    }
}
