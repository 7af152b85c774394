//! Everything that acts on the machine for knobs, caches and places. This module: system calls
//! with errors that name the action and its object.
//!
//! All of this runs outside timed parts. Descriptors are close-on-exec, so that no command inherits
//! a lab's image.

pub mod age;
pub mod device;
pub mod files;
pub mod image;
pub mod loop_device;
pub mod loop_table;
pub mod mount;
pub mod remove;
pub mod run;
pub mod tally;

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long, c_uint, pid_t};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fs::{fadvise, Advice, AtFlags, MemfdFlags, Mode, OFlags, CWD};
pub use rustix::fs::{ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::process::{getrlimit, kill_process, pidfd_open, Pid, PidfdFlags, Resource, Signal};
use rustix::time::Timespec;

use crate::error::{last_errno, Doing, Error, Result};

/// Convert a path (or any other string) to a C string.
pub fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::bad(format!("{text:?} holds a NUL byte")))
}

/// Turn a return value of -1 into an error that says what was being done.
pub fn check(result: c_int, doing: impl FnOnce() -> String) -> Result<c_int> {
    if result == -1 {
        Err(Error::last_os(doing()))
    } else {
        Ok(result)
    }
}

fn open_flags(flags: c_int) -> OFlags {
    OFlags::from_bits_retain(flags as c_uint) | OFlags::CLOEXEC
}

/// open(2). The error is the errno, for callers with a fallback.
pub fn try_open(path: &CStr, flags: c_int, mode: c_uint) -> std::result::Result<OwnedFd, i32> {
    rustix::fs::openat(CWD, path, open_flags(flags), Mode::from_bits_retain(mode))
        .map_err(Errno::raw_os_error)
}

pub fn open(path: &str, flags: c_int, mode: c_uint) -> Result<OwnedFd> {
    try_open(&c_text(path)?, flags, mode)
        .map_err(|errno| Error::errno(format!("open {path}"), errno))
}

/// Environment variable with the descriptor that is the standard output of the process that started the probe.
const STDOUT: &str = "IOTRIAL_STDOUT";

/// Duplicate the standard output of the process that started the probe; its own carries answers.
pub fn inherited_stdout() -> Result<OwnedFd> {
    let number = std::env::var(STDOUT)
        .ok()
        .and_then(|text| text.parse::<RawFd>().ok())
        .filter(|&number| number > 2)
        .ok_or_else(|| Error::bad(format!("stdout inherit: {STDOUT} names no descriptor")))?;
    // SAFETY: the descriptor was passed for this, and stays open as long as the process.
    let passed = unsafe { BorrowedFd::borrow_raw(number) };
    let doing = || "use the inherited standard output";
    // Programs get it as their standard output only.
    rustix::io::fcntl_setfd(passed, rustix::io::FdFlags::CLOEXEC).doing(doing)?;
    rustix::io::fcntl_dupfd_cloexec(passed, 3).doing(doing)
}

/// Make or empty a regular file for writing, as a shell does for `> FILE`.
pub fn emptied_file(path: &str, mode: c_uint) -> Result<OwnedFd> {
    // Not emptied before it is known to be a regular file; without waiting for the reader of a FIFO.
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = open(path, flags, mode)?;
    let doing = || format!("write to {path}");
    let kind = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file).doing(doing)?.st_mode);
    if !kind.is_file() {
        return Err(Error::unsupported(format!(
            "write to {path}: not a regular file"
        )));
    }
    rustix::fs::ftruncate(&file, 0).doing(doing)?;
    rustix::fs::fcntl_setfl(&file, OFlags::empty()).doing(doing)?;
    Ok(file)
}

/// openat2(2). The error is the errno.
pub fn open_at(
    folder: impl AsFd,
    name: &CStr,
    flags: c_int,
    resolve: ResolveFlags,
) -> std::result::Result<OwnedFd, i32> {
    rustix::fs::openat2(folder, name, open_flags(flags), Mode::empty(), resolve)
        .map_err(Errno::raw_os_error)
}

/// Open a path with O_PATH and without following links: the conductor has resolved the path before,
/// so a link in it was put there since. If the last component is a link, the link itself is opened.
pub fn hold(path: &str, flags: c_int, doing: &str) -> Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | flags;
    open_at(CWD, &c_text(path)?, flags, ResolveFlags::NO_SYMLINKS).map_err(|errno| match errno {
        libc::ENOSYS => Error::unsupported(format!("{doing}: needs openat2 (Linux 5.6 or later)")),
        libc::ELOOP => Error::errno(
            format!("{doing}: a folder of that path has become a link"),
            errno,
        ),
        _ => Error::errno(doing, errno),
    })
}

/// Open the parent folder of a path. Returns it with the last component.
pub fn hold_parent(path: &str, doing: &str) -> Result<(OwnedFd, CString)> {
    let trimmed = path.trim_end_matches('/');
    let (parent, name) = trimmed.rsplit_once('/').unwrap_or((".", trimmed));
    if name.is_empty() || name == "." || name == ".." {
        return Err(Error::bad(format!("{doing}: the path must end in a name")));
    }
    let parent = if parent.is_empty() { "/" } else { parent };
    Ok((hold(parent, libc::O_DIRECTORY, doing)?, c_text(name)?))
}

/// Flags for opening a name that others control: a link is an error, and a FIFO in its place does
/// not block.
pub const ITSELF: c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Open for reading without updating atime (O_NOATIME), or plainly if only the owner may do that. A
/// link is an error.
pub fn open_quietly(path: &str) -> Result<OwnedFd> {
    open_quietly_with(path, ITSELF)
}

/// Like `open_quietly`, for a name that may be a link.
pub fn open_quietly_through(path: &str) -> Result<OwnedFd> {
    open_quietly_with(path, libc::O_NONBLOCK)
}

fn open_quietly_with(path: &str, flags: c_int) -> Result<OwnedFd> {
    let text = c_text(path)?;
    match try_open(&text, flags | libc::O_RDONLY | libc::O_NOATIME, 0) {
        Err(libc::EPERM) => try_open(&text, flags | libc::O_RDONLY, 0),
        other => other,
    }
    .map_err(|errno| Error::errno(format!("open {path}"), errno))
}

/// chmod(2) that fails with ELOOP on a link instead of following it.
pub fn set_mode(path: &str, mode: c_uint) -> Result<()> {
    let doing = || format!("set the mode of {path} to {:04o}", mode & 0o7777);
    let file = try_open(&c_text(path)?, libc::O_PATH | libc::O_NOFOLLOW, 0)
        .map_err(|errno| Error::errno(doing(), errno))?;
    if kind_of(&stat_of(&file, path)?) == "symlink" {
        return Err(Error::errno(doing(), libc::ELOOP));
    }
    // chmod of an O_PATH descriptor needs its name in /proc (proc_pid_fd(5)); fchmod refuses it.
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmod(itself, Mode::from_bits_retain(mode)).doing(doing)
}

/// lstat(2) or stat(2).
pub fn stat(path: &str, follow: bool) -> Result<Stat> {
    let found = match follow {
        true => rustix::fs::stat(path),
        false => rustix::fs::lstat(path),
    };
    found.doing(|| format!("stat {path}"))
}

/// fstatat(2) of a name in a folder, without following links. The error is the errno.
pub fn stat_at(folder: impl AsFd, name: &CStr) -> std::result::Result<Stat, i32> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(Errno::raw_os_error)
}

/// fstat(2).
pub fn stat_of(fd: &OwnedFd, path: &str) -> Result<Stat> {
    rustix::fs::fstat(fd).doing(|| format!("stat {path}"))
}

/// Return whether a name exists, without following links.
pub fn exists(path: &str) -> Result<bool> {
    match stat(path, false) {
        Ok(_) => Ok(true),
        Err(Error::Os {
            errno: libc::ENOENT,
            ..
        }) => Ok(false),
        Err(error) => Err(error),
    }
}

pub fn kind_of(status: &Stat) -> &'static str {
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG => "file",
        libc::S_IFDIR => "directory",
        libc::S_IFLNK => "symlink",
        libc::S_IFBLK => "block",
        _ => "other",
    }
}

/// mkdir(2) of a folder that must not exist yet.
pub fn make_folder(path: &str, mode: c_uint) -> Result<()> {
    rustix::fs::mkdir(path, Mode::from_bits_retain(mode)).doing(|| format!("make folder {path}"))
}

/// Create an anonymous file in memory, for the input or output of a command.
pub fn memory_file(name: &CStr) -> Result<OwnedFd> {
    rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).doing(|| "create a file in memory")
}

/// Create a pipe. Returns the read end and the write end.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing(|| "make a pipe")
}

/// Start a thread that gets no signals: a new thread inherits the mask.
pub fn without_signals<T>(act: impl FnOnce() -> T) -> T {
    // SAFETY: the sets are ours; both live until the end.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let result = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        result
    }
}

/// Write everything, in as many calls as needed.
pub fn write_all(fd: impl AsFd, mut bytes: &[u8], path: &str) -> Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Err(Errno::INTR) => {}
            written => bytes = &bytes[written.doing(|| format!("write {path}"))?..],
        }
    }
    Ok(())
}

/// Read until the buffer is full or the file ends.
pub fn read_full(fd: impl AsFd, buffer: &mut [u8], path: &str) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::read(&fd, &mut buffer[filled..]) {
            Err(Errno::INTR) => {}
            Ok(0) => break,
            read => filled += read.doing(|| format!("read {path}"))?,
        }
    }
    Ok(filled)
}

/// Open a pidfd (pidfd_open(2)): readable when the process has ended.
pub fn process_descriptor(pid: pid_t) -> Result<OwnedFd> {
    let process = Pid::from_raw(pid).ok_or(Errno::SRCH);
    process
        .and_then(|process| pidfd_open(process, PidfdFlags::empty()))
        .doing(|| format!("open a descriptor of process {pid}"))
}

/// Mount a file system by type (`debugfs`, `tmpfs`) without attaching it to any path. The host's
/// mounts are unchanged, and it goes away with its descriptor. Uses fsopen, fsconfig, fsmount
/// (Linux 5.2).
pub fn mount_nowhere(kind: &str) -> Result<OwnedFd> {
    let mounted = || {
        let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        rustix::mount::fsmount(&context, flags, MountAttrFlags::empty())
    };
    mounted().doing(|| format!("mount {kind}"))
}

/// Take ownership of the descriptor that a system call has just returned. The error is the errno.
///
/// # Safety
///
/// The descriptor must be new and owned by nothing else.
pub unsafe fn new_descriptor(result: c_long) -> std::result::Result<OwnedFd, i32> {
    match result {
        -1 => Err(last_errno()),
        // SAFETY: guaranteed by the caller.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
    }
}

/// waitpid(2), restarted after signals. Returns the process and its wait status; None if none has
/// ended (WNOHANG).
pub fn wait(pid: pid_t, flags: c_int) -> std::result::Result<Option<(pid_t, c_int)>, i32> {
    let mut status = 0;
    loop {
        // SAFETY: we own `status`.
        match unsafe { libc::waitpid(pid, &mut status, flags) } {
            0 => return Ok(None),
            -1 if last_errno() == libc::EINTR => {}
            -1 => return Err(last_errno()),
            ended => return Ok(Some((ended, status))),
        }
    }
}

/// Send SIGKILL. The error is the errno.
pub fn kill(pid: pid_t) -> std::result::Result<(), i32> {
    let process = Pid::from_raw(pid).ok_or(Errno::SRCH);
    process
        .and_then(|process| kill_process(process, Signal::KILL))
        .map_err(Errno::raw_os_error)
}

/// Return whether a descriptor becomes readable or closed within this many milliseconds.
pub fn is_ready(fd: impl AsFd, within_ms: c_int) -> bool {
    let within = Timespec {
        tv_sec: i64::from(within_ms) / 1000,
        tv_nsec: i64::from(within_ms) % 1000 * 1_000_000,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&within)).is_ok_and(|n| n > 0)
}

/// sync_file_range(2): start, or with the other flags also await, write-back of a range's dirty
/// pages. Length 0 means to the end of the file.
pub fn write_back(
    file: &OwnedFd,
    (offset, length): (u64, u64),
    flags: c_uint,
    doing: impl FnOnce() -> String,
) -> Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: no pointers are involved.
    let result = unsafe { libc::sync_file_range(fd, offset as i64, length as i64, flags) };
    check(result, doing).map(drop)
}

/// Drop the clean pages of a file.
pub fn drop_pages(file: &OwnedFd, path: &str) -> Result<()> {
    fadvise(file, 0, None, Advice::DontNeed).doing(|| format!("drop the pages of {path}"))
}

/// Return the limit on open files (RLIMIT_NOFILE).
pub fn open_files() -> libc::rlimit {
    let limit = getrlimit(Resource::Nofile);
    libc::rlimit {
        rlim_cur: limit.current.unwrap_or(libc::RLIM_INFINITY),
        rlim_max: limit.maximum.unwrap_or(libc::RLIM_INFINITY),
    }
}
