//! Starts a program cheaply: clone with CLONE_VM | CLONE_VFORK, then exec.
//!
//! Copying the probe's page tables, as fork does, would cost more than opening the file that a
//! short command reads. The child shares our memory until it has executed the program, and we are
//! suspended until then. So the code of the child only makes system calls: no allocation, no lock,
//! no library state.

use std::ffi::{c_void, CString};
use std::os::unix::io::RawFd;

use libc::{c_int, c_long, c_ulong, gid_t, mode_t, pid_t, rlimit, sigset_t};

use crate::error::{last_errno, Error, Result};
use crate::identity::User;
use crate::process::program::{CArray, Program};

const STACK_BYTES: usize = 64 * 1024;

/// Everything that a program needs besides its name and arguments.
pub struct Surroundings {
    pub environment: CArray,
    pub folder: Option<CString>,
    pub user: Option<User>,
    /// Supplementary groups of the user.
    pub groups: Vec<gid_t>,
    /// Stop it at its first instruction, to be traced by the thread that starts it (ptrace(2)).
    pub traced: bool,
    pub stdin: RawFd,
    pub stdout: RawFd,
    pub stderr: RawFd,
}

/// Settings that the probe has changed for itself, restored for programs.
#[derive(Clone, Copy)]
pub struct Inherited {
    pub open_files: rlimit,
    pub umask: mode_t,
}

pub struct Starter {
    stack: Vec<u128>, // aligned to 16 bytes, as the ABI requires
    inherited: Inherited,
}

/// The child's instructions, and where it reports how far it got.
struct Errand<'a> {
    program: &'a Program,
    around: &'a Surroundings,
    inherited: &'a Inherited,
    signals: sigset_t,
    step: &'static str,
    errno: c_int,
}

impl Starter {
    pub fn new(inherited: Inherited) -> Self {
        Starter {
            stack: vec![0; STACK_BYTES / 16],
            inherited,
        }
    }

    /// The mask for modes of new files that programs get.
    pub fn umask(&self) -> mode_t {
        self.inherited.umask
    }

    /// Start a program as the leader of a new process group. Returns after the exec.
    pub fn start(&mut self, program: &Program, around: &Surroundings) -> Result<pid_t> {
        // SAFETY: the child runs on the stack below, in our memory, while we wait; it touches only
        // `errand` and makes system calls. Signals are blocked meanwhile, so that no handler of
        // ours runs in the child.
        let (pid, errand) = unsafe {
            let mut all: sigset_t = std::mem::zeroed();
            let mut before: sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, &mut before);
            let mut errand = Errand {
                program,
                around,
                inherited: &self.inherited,
                signals: before,
                step: "clone",
                errno: 0,
            };
            let pid = libc::clone(
                child,
                self.stack.as_mut_ptr().add(self.stack.len()).cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                (&mut errand as *mut Errand).cast(),
            );
            if pid == -1 {
                errand.errno = last_errno();
            }
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            (pid, errand)
        };
        // The child wrote to it without the compiler's knowledge.
        // SAFETY: we own `errand`, and it is alive.
        let (errno, step) = unsafe {
            (
                std::ptr::read_volatile(&errand.errno),
                std::ptr::read_volatile(&errand.step),
            )
        };
        if errno == 0 {
            return Ok(pid);
        }
        if pid > 0 {
            // SAFETY: the child has ended without executing anything; its status is not requested.
            unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
        }
        Err(Error::errno(
            format!("start {}: {step}", program.name),
            errno,
        ))
    }
}

extern "C" fn child(errand: *mut c_void) -> c_int {
    // SAFETY: the parent is suspended in clone with `errand` alive; raw system calls only. The libc
    // wrappers for changing users would signal all threads of the process, which are the parent's.
    unsafe {
        let errand = &mut *errand.cast::<Errand>();
        let around = errand.around;
        let failed = 'steps: loop {
            macro_rules! step {
                ($what:literal, $result:expr) => {
                    errand.step = $what;
                    if $result as c_long == -1 {
                        break 'steps last_errno();
                    }
                };
            }
            step!("make a process group", libc::setpgid(0, 0));
            step!("standard input", libc::dup2(around.stdin, 0));
            step!("standard output", libc::dup2(around.stdout, 1));
            step!("standard error", libc::dup2(around.stderr, 2));
            // Rust ignores SIGPIPE, and ignored signals stay ignored across exec.
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            libc::umask(errand.inherited.umask);
            step!(
                "restore the limit of open files",
                libc::setrlimit(libc::RLIMIT_NOFILE, &errand.inherited.open_files)
            );
            if let Some(folder) = &around.folder {
                step!(
                    "change to its working directory",
                    libc::chdir(folder.as_ptr())
                );
            }
            if let Some(user) = around.user {
                step!(
                    "change supplementary groups",
                    libc::syscall(
                        libc::SYS_setgroups,
                        around.groups.len(),
                        around.groups.as_ptr()
                    )
                );
                step!(
                    "change the group",
                    libc::syscall(libc::SYS_setresgid, user.gid, user.gid, user.gid)
                );
                step!(
                    "change the user",
                    libc::syscall(libc::SYS_setresuid, user.uid, user.uid, user.uid)
                );
            }
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong);
            step!(
                "restore the signal mask",
                libc::sigprocmask(libc::SIG_SETMASK, &errand.signals, std::ptr::null_mut())
            );
            if around.traced {
                step!("be traced", libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0));
            }
            step!(
                "execute it",
                libc::execve(
                    errand.program.path.as_ptr(),
                    errand.program.argv.as_ptr(),
                    around.environment.as_ptr(),
                )
            );
        };
        errand.errno = failed;
        libc::_exit(127)
    }
}
