//! Dies with its parent, and takes everything it started along: parent-death signal and namespaces.
//!
//! With `--isolate` the probe is process 1 of a PID namespace and lives in a mount namespace of its own. When it dies,
//! however it dies, the kernel kills every process in the one and takes down every mount in the other; loop devices clear
//! themselves after their last mount. So SIGKILL needs no clean-up.

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

/// How the probe knows that its parent is still there. The kernel forgets the parent-death signal when a process
/// changes its user (prctl(2), PR_SET_PDEATHSIG), so it is set anew after each change.
pub enum Lifeline {
    /// The parent's process id, as getppid() says while it lives.
    Parent(Pid),
    /// A pipe of which only the outer process has the writing end: its id cannot be seen from inside the namespace.
    Pipe(OwnedFd),
}

impl Lifeline {
    /// Ties this process to its present parent.
    pub fn to_parent() -> Self {
        // Nobody is above process 1.
        let lifeline = Lifeline::Parent(getppid().unwrap_or(Pid::INIT));
        lifeline.tie();
        lifeline
    }

    /// Asks the kernel for SIGKILL at the parent's death; ends at once if it died before it was asked.
    pub fn tie(&self) {
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        if !self.parent_lives() {
            exit(128 + libc::SIGKILL);
        }
    }

    fn parent_lives(&self) -> bool {
        match self {
            Lifeline::Parent(pid) => getppid().unwrap_or(Pid::INIT) == *pid,
            // No event is asked for: what comes is that the other end was closed.
            Lifeline::Pipe(reading) => {
                let mut polled = [PollFd::new(reading, PollFlags::empty())];
                poll(&mut polled, Some(&Timespec::default())) == Ok(0)
            }
        }
    }
}

/// Moves to private namespaces. Returns in the inner process only; the outer one waits for it and ends as it ended.
/// `of_guest`: there is nobody from whom mounts are to be kept, and servers of the kernel's own look for them where it began.
pub fn enter(of_guest: bool) -> Result<(Lifeline, Broker)> {
    let (broker, outer) = broker::prepare()?;
    // SAFETY: the process has one thread, and no descriptors or folders are unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::NEWPID) }
        .doing(|| "unshare mount and PID namespaces")?;
    let (reading, writing) = sys::pipe()?;
    // SAFETY: the process has one thread, so the child may go on as the parent would.
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

/// No mount of ours reaches the host and none of the host's changes reaches us.
fn make_mounts_private() -> Result<()> {
    let flags = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", flags).doing(|| "make all mounts private")
}

/// /proc shows our own processes.
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

/// The session that the probe and all it starts belong to, as the host sees it: how a later process finds what is left.
/// And the host's /proc, from before the probe moved to a namespace in which it sees no other processes.
pub struct Origin {
    pub session: pid_t,
    pub started: u64,
    pub proc: OwnedFd,
}

impl Origin {
    pub fn here() -> Result<Self> {
        // Started by hand from a shell, the session is the shell's, and not ours to end: then this process alone.
        let leader = getpid().as_raw_nonzero().get();
        let started = crate::process::orphans::started(leader).ok_or_else(|| {
            Error::verify(format!("read /proc/{leader}/stat: wanted a start time"))
        })?;
        Ok(Origin {
            session: leader,
            started,
            proc: crate::sys::open("/proc", libc::O_PATH | libc::O_DIRECTORY, 0)?,
        })
    }
}

/// Goes on in a child, with a guard above it that outlives both the child and the conductor for as long as it takes to end
/// what commands have left running. Without a PID namespace the kernel would only end the direct children.
pub fn under_guard(outer: Lifeline) -> Result<Lifeline> {
    adopt_orphans()?;
    let guard = getpid();
    // SAFETY: the process has one thread, so the child may go on as the parent would.
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

/// Waits for the inner process or for the conductor's death, then ends everything below.
fn guard_of(inner: pid_t, outer: &Lifeline) -> ! {
    // SAFETY: the set is ours; signals that are waited for are blocked, so none is lost between the checks.
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
    // Orphans of commands have come to us with the inner process's death.
    if let Err(error) = crate::process::stragglers::sweep(false, true) {
        eprintln!("ioprobe: {error}");
    }
    pass_on(status)
}

/// Orphans of commands come to us instead of going to the system's process 1, so that they can be found and ended.
fn adopt_orphans() -> Result<()> {
    set_child_subreaper(Some(getpid())).doing(|| "become the reaper of orphans")
}

/// Leaves the terminal's process group: at Ctrl-C the conductor still needs the probe to put things back.
pub fn leave_terminal() {
    // Fails for a group's leader (started by hand), which then keeps its Ctrl-C.
    let _ = setsid();
}

/// Drops the signals of the terminal that came before `leave_terminal`, and takes them from now on.
///
/// The conductor blocks them while it starts the probe, so that a Ctrl-C, which is the conductor's, does not end the probe.
pub fn drop_signals_of_terminal() {
    // SAFETY: the set is ours; no handler is installed. To ignore a signal drops it where it is pending.
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

/// Ties a forked child to its parent: the kernel ends it with it.
pub fn end_with(parent: Pid) {
    let tied = set_parent_process_death_signal(Some(Signal::KILL));
    if tied.is_err() || getppid() != Some(parent) {
        exit(0);
    }
}

/// Whether mounts and loop devices are within reach: CAP_SYS_ADMIN is in force.
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

/// Refuses early what needs root, in words.
pub fn require_privilege(doing: &str) -> Result<()> {
    if privileged() {
        Ok(())
    } else {
        Err(Error::unsupported(format!(
            "{doing}: wanted root (CAP_SYS_ADMIN), found uid {}",
            geteuid().as_raw()
        )))
    }
}
