//! Dies with its parent, and takes everything it started along: parent-death signal and namespaces.
//!
//! With `--isolate` the probe is process 1 of a PID namespace and lives in a mount namespace of its own. When it dies,
//! however it dies, the kernel kills every process in the one and takes down every mount in the other; loop devices clear
//! themselves after their last mount. So SIGKILL needs no clean-up.

use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};
use std::process::exit;

use libc::{c_int, c_ulong, pid_t};
use rustix::process::{getppid, set_parent_process_death_signal, Pid, Signal};

use crate::broker::{self, Broker};
use crate::error::{Error, Result};
use crate::sys::check;

/// How the probe knows that its parent is still there. The kernel forgets the parent-death signal when a process
/// changes its user (prctl(2), PR_SET_PDEATHSIG), so it is set anew after each change.
pub enum Lifeline {
    /// The parent's process id, as getppid() says while it lives.
    Parent(pid_t),
    /// A pipe of which only the outer process has the writing end: its id cannot be seen from inside the namespace.
    Pipe(OwnedFd),
}

impl Lifeline {
    /// Ties this process to its present parent.
    pub fn to_parent() -> Self {
        // SAFETY: getppid cannot fail.
        let lifeline = Lifeline::Parent(unsafe { libc::getppid() });
        lifeline.tie();
        lifeline
    }

    /// Asks the kernel for SIGKILL at the parent's death; ends at once if it died before it was asked.
    pub fn tie(&self) {
        // SAFETY: no pointers are involved; _exit runs nothing of ours.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong);
            if !self.parent_lives() {
                libc::_exit(128 + libc::SIGKILL);
            }
        }
    }

    fn parent_lives(&self) -> bool {
        match self {
            // SAFETY: getppid cannot fail.
            Lifeline::Parent(pid) => unsafe { libc::getppid() == *pid },
            Lifeline::Pipe(reading) => {
                let mut poll = libc::pollfd {
                    fd: reading.as_raw_fd(),
                    events: 0,
                    revents: 0,
                };
                // SAFETY: one structure, ours.
                unsafe { libc::poll(&mut poll, 1, 0) == 0 }
            }
        }
    }
}

/// Moves to private namespaces. Returns in the inner process only; the outer one waits for it and ends as it ended.
/// `of_guest`: there is nobody from whom mounts are to be kept, and servers of the kernel's own look for them where it began.
pub fn enter(of_guest: bool) -> Result<(Lifeline, Broker)> {
    let (broker, outer) = broker::prepare()?;
    // SAFETY: no pointers are involved.
    check(
        unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_NEWPID) },
        || "unshare mount and PID namespaces".to_string(),
    )?;
    let mut ends: [c_int; 2] = [-1; 2];
    // SAFETY: the array has room for both descriptors, which are new and ours.
    let (reading, writing) = unsafe {
        check(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), || {
            "make a pipe".to_string()
        })?;
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
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
    // SAFETY: the text is a literal that ends with NUL.
    check(
        unsafe {
            libc::mount(
                std::ptr::null(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_PRIVATE,
                std::ptr::null(),
            )
        },
        || "make all mounts private".to_string(),
    )?;
    Ok(())
}

/// /proc shows our own processes.
fn mount_own_proc() -> Result<()> {
    let proc = c"proc".as_ptr();
    // SAFETY: all texts are literals that end with NUL.
    unsafe {
        check(
            libc::mount(
                proc,
                c"/proc".as_ptr(),
                proc,
                libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC,
                std::ptr::null(),
            ),
            || "mount a fresh /proc".to_string(),
        )?;
    }
    Ok(())
}

fn wait_for(pid: pid_t) -> c_int {
    let mut status = 0;
    loop {
        // SAFETY: `status` is ours.
        let waited = unsafe { libc::waitpid(pid, &mut status, 0) };
        if waited == pid {
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
        // SAFETY: no pointers are involved; for the calling process getsid cannot fail.
        let session = unsafe { libc::getsid(0) };
        // Started by hand from a shell, the session is the shell's, and not ours to end: then this process alone.
        let leader = if session == std::process::id() as pid_t {
            session
        } else {
            std::process::id() as pid_t
        };
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
    // SAFETY: getpid cannot fail; the process has one thread, so the child may go on as the parent would.
    let guard = unsafe { libc::getpid() };
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
    // SAFETY: no pointers are involved.
    check(
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1 as c_ulong) },
        || "become the reaper of orphans".to_string(),
    )?;
    Ok(())
}

/// Leaves the terminal's process group: at Ctrl-C the conductor still needs the probe to put things back.
pub fn leave_terminal() {
    // SAFETY: no pointers are involved. Fails for a group's leader (started by hand), which then keeps its Ctrl-C.
    unsafe { libc::setsid() };
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
            // SAFETY: geteuid cannot fail.
            unsafe { libc::geteuid() }
        )))
    }
}
