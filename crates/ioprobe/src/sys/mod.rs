//! Everything by which knobs, caches and places act on this machine; and here, system calls with errors that say what was done
//! to what.
//!
//! Everything here runs outside timed parts. Descriptors are close-on-exec, so that no command inherits a lab's image.

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
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long, c_uint, pid_t};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::fs::{fadvise, Advice, AtFlags, MemfdFlags, Mode, OFlags, CWD};
pub use rustix::fs::{ResolveFlags, Stat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::process::{getrlimit, kill_process, pidfd_open, Pid, PidfdFlags, Resource, Signal};
use rustix::time::Timespec;

use crate::error::{last_errno, Doing, Error, Result};

/// A path (or any other text) as the kernel takes it.
pub fn c_text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::bad(format!("{text:?} holds a NUL byte")))
}

/// Turns a return value of -1 into an error that says what was being done.
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

/// open(2); the errno is left to the caller, who may have a second way.
pub fn try_open(path: &CStr, flags: c_int, mode: c_uint) -> std::result::Result<OwnedFd, i32> {
    rustix::fs::openat(CWD, path, open_flags(flags), Mode::from_bits_retain(mode))
        .map_err(Errno::raw_os_error)
}

pub fn open(path: &str, flags: c_int, mode: c_uint) -> Result<OwnedFd> {
    try_open(&c_text(path)?, flags, mode)
        .map_err(|errno| Error::errno(format!("open {path}"), errno))
}

/// openat2(2); the errno is left to the caller.
pub fn open_at(
    folder: impl AsFd,
    name: &CStr,
    flags: c_int,
    resolve: ResolveFlags,
) -> std::result::Result<OwnedFd, i32> {
    rustix::fs::openat2(folder, name, open_flags(flags), Mode::empty(), resolve)
        .map_err(Errno::raw_os_error)
}

/// Holds what a path leads to, with no link on the way: the conductor resolves a path once, so a link in it has been put there
/// since. Of a link in the last place, the link itself.
pub fn hold(path: &str, flags: c_int, doing: &str) -> Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | flags;
    open_at(CWD, &c_text(path)?, flags, ResolveFlags::NO_SYMLINKS).map_err(|errno| match errno {
        libc::ENOSYS => {
            Error::unsupported(format!("{doing}: wanted openat2 (Linux 5.6), found none"))
        }
        libc::ELOOP => Error::errno(
            format!("{doing}: a folder of that path has become a link"),
            errno,
        ),
        _ => Error::errno(doing, errno),
    })
}

/// The folder that holds a name, held, and the name in it.
pub fn hold_parent(path: &str, doing: &str) -> Result<(OwnedFd, CString)> {
    let trimmed = path.trim_end_matches('/');
    let (parent, name) = trimmed.rsplit_once('/').unwrap_or((".", trimmed));
    if name.is_empty() || name == "." || name == ".." {
        return Err(Error::bad(format!(
            "{doing}: wanted a path that ends in a name"
        )));
    }
    let parent = if parent.is_empty() { "/" } else { parent };
    Ok((hold(parent, libc::O_DIRECTORY, doing)?, c_text(name)?))
}

/// What opening somebody else's name needs: a link is an error, and a pipe in its place is not waited for.
pub const ITSELF: c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK;

/// Opens for reading without leaving a trace in atime; where only the owner may do so, plainly. A link is an error.
pub fn open_quietly(path: &str) -> Result<OwnedFd> {
    open_quietly_with(path, ITSELF)
}

/// As `open_quietly`, for a name that is a link by right.
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

/// chmod(2) that does not follow a link: an error (ELOOP) instead.
pub fn set_mode(path: &str, mode: c_uint) -> Result<()> {
    let doing = || format!("set the mode of {path} to {:04o}", mode & 0o7777);
    let file = try_open(&c_text(path)?, libc::O_PATH | libc::O_NOFOLLOW, 0)
        .map_err(|errno| Error::errno(doing(), errno))?;
    if kind_of(&stat_of(&file, path)?) == "symlink" {
        return Err(Error::errno(doing(), libc::ELOOP));
    }
    // chmod(2) of an O_PATH descriptor goes by its name in /proc (proc_pid_fd(5)); fchmod refuses it.
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

/// Of a name in a folder, not followed; the errno is left to the caller.
pub fn stat_at(folder: impl AsFd, name: &CStr) -> std::result::Result<Stat, i32> {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(Errno::raw_os_error)
}

/// The state of an open file.
pub fn stat_of(fd: &OwnedFd, path: &str) -> Result<Stat> {
    rustix::fs::fstat(fd).doing(|| format!("stat {path}"))
}

/// Whether a name exists, without following it.
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

/// mkdir(2) for one folder that may not exist yet.
pub fn make_folder(path: &str, mode: c_uint) -> Result<()> {
    rustix::fs::mkdir(path, Mode::from_bits_retain(mode)).doing(|| format!("make folder {path}"))
}

/// An anonymous file in memory, for what a command reads or says.
pub fn memory_file(name: &CStr) -> Result<OwnedFd> {
    rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).doing(|| "create a file in memory")
}

/// A pipe: the reading end, and the writing one.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).doing(|| "make a pipe")
}

/// Writes everything, in as many calls as it takes.
pub fn write_all(fd: impl AsFd, mut bytes: &[u8], path: &str) -> Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Err(Errno::INTR) => {}
            written => bytes = &bytes[written.doing(|| format!("write {path}"))?..],
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
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

/// A process by descriptor (pidfd_open(2)): ready to read when it has ended.
pub fn process_descriptor(pid: pid_t) -> Result<OwnedFd> {
    let process = Pid::from_raw(pid).ok_or(Errno::SRCH);
    process
        .and_then(|process| pidfd_open(process, PidfdFlags::empty()))
        .doing(|| format!("open a descriptor of process {pid}"))
}

/// A file system of the kernel's own (`debugfs`), mounted where no path leads: the host's tree stays as it is, and it goes with
/// its descriptor. fsopen, fsconfig, fsmount: Linux 5.2.
pub fn mount_nowhere(kind: &str) -> Result<OwnedFd> {
    let mounted = || {
        let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&context)?;
        let flags = FsMountFlags::FSMOUNT_CLOEXEC;
        rustix::mount::fsmount(&context, flags, MountAttrFlags::empty())
    };
    mounted().doing(|| format!("mount {kind}"))
}

/// The descriptor that a system call has just returned; the errno is left to the caller.
///
/// # Safety
///
/// It must be new, and nobody else's.
pub unsafe fn new_descriptor(result: c_long) -> std::result::Result<OwnedFd, i32> {
    match result {
        -1 => Err(last_errno()),
        // SAFETY: the caller says so.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }),
    }
}

/// waitpid(2), begun again when a signal interrupts it: who has ended, and its wait status; None where nobody has (WNOHANG).
pub fn wait(pid: pid_t, flags: c_int) -> std::result::Result<Option<(pid_t, c_int)>, i32> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is ours.
        match unsafe { libc::waitpid(pid, &mut status, flags) } {
            0 => return Ok(None),
            -1 if last_errno() == libc::EINTR => {}
            -1 => return Err(last_errno()),
            ended => return Ok(Some((ended, status))),
        }
    }
}

/// SIGKILL; the errno is left to the caller.
pub fn kill(pid: pid_t) -> std::result::Result<(), i32> {
    let process = Pid::from_raw(pid).ok_or(Errno::SRCH);
    process
        .and_then(|process| kill_process(process, Signal::KILL))
        .map_err(Errno::raw_os_error)
}

/// Whether something can be read, or is over, within so many milliseconds.
pub fn is_ready(fd: impl AsFd, within_ms: c_int) -> bool {
    let within = Timespec {
        tv_sec: i64::from(within_ms) / 1000,
        tv_nsec: i64::from(within_ms) % 1000 * 1_000_000,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&within)).is_ok_and(|n| n > 0)
}

/// sync_file_range(2): starts, or with the other flags also awaits, the writing of a range's dirty pages; length 0: to the end.
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

/// Drops the clean pages of a file.
pub fn drop_pages(file: &OwnedFd, path: &str) -> Result<()> {
    fadvise(file, 0, None, Advice::DontNeed).doing(|| format!("drop the pages of {path}"))
}

/// The limit of open files (RLIMIT_NOFILE).
pub fn open_files() -> libc::rlimit {
    let limit = getrlimit(Resource::Nofile);
    libc::rlimit {
        rlim_cur: limit.current.unwrap_or(libc::RLIM_INFINITY),
        rlim_max: limit.maximum.unwrap_or(libc::RLIM_INFINITY),
    }
}
