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
use std::mem::MaybeUninit;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_long, c_uint, pid_t};

use crate::error::{last_errno, Error, Result};

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

/// open(2); the errno is left to the caller, who may have a second way.
pub fn try_open(path: &CStr, flags: c_int, mode: c_uint) -> std::result::Result<OwnedFd, i32> {
    // SAFETY: `path` ends with NUL; the descriptor is new and ours.
    unsafe {
        match libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, mode) {
            -1 => Err(last_errno()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

pub fn open(path: &str, flags: c_int, mode: c_uint) -> Result<OwnedFd> {
    try_open(&c_text(path)?, flags, mode)
        .map_err(|errno| Error::errno(format!("open {path}"), errno))
}

pub const RESOLVE_NO_XDEV: u64 = 1;
pub const RESOLVE_NO_SYMLINKS: u64 = 4;

/// openat2(2); the errno is left to the caller.
pub fn open_at(
    folder: RawFd,
    name: &CStr,
    flags: c_int,
    resolve: u64,
) -> std::result::Result<OwnedFd, i32> {
    /// `struct open_how` of linux/openat2.h.
    #[repr(C)]
    struct OpenHow {
        flags: u64,
        mode: u64,
        resolve: u64,
    }
    let how = OpenHow {
        flags: (flags | libc::O_CLOEXEC) as u64,
        mode: 0,
        resolve,
    };
    // SAFETY: `name` ends with NUL, `how` is passed with its size; the descriptor is new and ours.
    unsafe {
        new_descriptor(libc::syscall(
            libc::SYS_openat2,
            folder,
            name.as_ptr(),
            &how,
            std::mem::size_of::<OpenHow>(),
        ))
    }
}

/// Holds what a path leads to, with no link on the way: the conductor resolves a path once, so a link in it has been put there
/// since. Of a link in the last place, the link itself.
pub fn hold(path: &str, flags: c_int, doing: &str) -> Result<OwnedFd> {
    let flags = libc::O_PATH | libc::O_NOFOLLOW | flags;
    open_at(libc::AT_FDCWD, &c_text(path)?, flags, RESOLVE_NO_SYMLINKS).map_err(|errno| match errno
    {
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
    let itself = c_text(&format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    // SAFETY: the text ends with NUL.
    check(unsafe { libc::chmod(itself.as_ptr(), mode) }, doing)?;
    Ok(())
}

/// lstat(2) or stat(2).
pub fn stat(path: &str, follow: bool) -> Result<libc::stat> {
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    stat_at(libc::AT_FDCWD, &c_text(path)?, flags)
        .map_err(|errno| Error::errno(format!("stat {path}"), errno))
}

pub fn stat_at(folder: RawFd, name: &CStr, flags: c_int) -> std::result::Result<libc::stat, i32> {
    let mut status = MaybeUninit::uninit();
    // SAFETY: on success the kernel has filled the whole structure.
    unsafe {
        match libc::fstatat(folder, name.as_ptr(), status.as_mut_ptr(), flags) {
            -1 => Err(last_errno()),
            _ => Ok(status.assume_init()),
        }
    }
}

/// The state of an open file.
pub fn stat_of(fd: &OwnedFd, path: &str) -> Result<libc::stat> {
    let mut status = MaybeUninit::uninit();
    // SAFETY: on success the kernel has filled the whole structure.
    unsafe {
        check(libc::fstat(fd.as_raw_fd(), status.as_mut_ptr()), || {
            format!("stat {path}")
        })?;
        Ok(status.assume_init())
    }
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

pub fn kind_of(status: &libc::stat) -> &'static str {
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
    let text = c_text(path)?;
    // SAFETY: `text` ends with NUL.
    check(unsafe { libc::mkdir(text.as_ptr(), mode) }, || {
        format!("make folder {path}")
    })?;
    Ok(())
}

/// An anonymous file in memory, for what a command reads or says.
pub fn memory_file(name: &CStr) -> Result<OwnedFd> {
    // SAFETY: the descriptor is new and ours.
    unsafe {
        let fd = check(libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC), || {
            "create a file in memory".to_string()
        })?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Writes everything, in as many calls as it takes.
pub fn write_all(fd: RawFd, mut bytes: &[u8], path: &str) -> Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for its length.
        let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        match n {
            -1 if last_errno() == libc::EINTR => {}
            -1 => return Err(Error::last_os(format!("write {path}"))),
            n => bytes = &bytes[n as usize..],
        }
    }
    Ok(())
}

/// Reads until the buffer is full or the file ends.
pub fn read_full(fd: RawFd, buffer: &mut [u8], path: &str) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut buffer[filled..];
        // SAFETY: the slice is valid for its length.
        match unsafe { libc::read(fd, rest.as_mut_ptr().cast(), rest.len()) } {
            -1 if last_errno() == libc::EINTR => {}
            -1 => return Err(Error::last_os(format!("read {path}"))),
            0 => break,
            n => filled += n as usize,
        }
    }
    Ok(filled)
}

/// A process by descriptor (pidfd_open(2)): ready to read when it has ended.
pub fn process_descriptor(pid: pid_t) -> Result<OwnedFd> {
    // SAFETY: no pointers are involved; the descriptor is new and ours.
    unsafe { new_descriptor(libc::syscall(libc::SYS_pidfd_open, pid, 0)) }
        .map_err(|errno| Error::errno(format!("open a descriptor of process {pid}"), errno))
}

/// A file system of the kernel's own (`debugfs`), mounted where no path leads: the host's tree stays as it is, and it goes with
/// its descriptor. fsopen, fsconfig, fsmount: Linux 5.2.
pub fn mount_nowhere(kind: &str) -> Result<OwnedFd> {
    mount_with(kind, &[])
}

/// As `mount_nowhere`, with options that have values.
pub fn mount_with(kind: &str, options: &[(&str, &str)]) -> Result<OwnedFd> {
    const FSOPEN_CLOEXEC: c_int = 1;
    const FSCONFIG_SET_STRING: c_int = 1;
    const FSCONFIG_CMD_CREATE: c_int = 6;
    const FSMOUNT_CLOEXEC: c_int = 1;
    let failed = |errno| Error::errno(format!("mount {kind}"), errno);
    let name = c_text(kind)?;
    let none = std::ptr::null::<u8>();
    // SAFETY: the text ends with NUL; both descriptors are new and ours.
    unsafe {
        let context = libc::syscall(libc::SYS_fsopen, name.as_ptr(), FSOPEN_CLOEXEC);
        let context = new_descriptor(context).map_err(failed)?;
        let fd = context.as_raw_fd();
        for (name, value) in options {
            let (name, value) = (c_text(name)?, c_text(value)?);
            let (name, value) = (name.as_ptr(), value.as_ptr());
            if libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_SET_STRING, name, value, 0) == -1 {
                return Err(failed(last_errno()));
            }
        }
        if libc::syscall(libc::SYS_fsconfig, fd, FSCONFIG_CMD_CREATE, none, none, 0) == -1 {
            return Err(failed(last_errno()));
        }
        new_descriptor(libc::syscall(libc::SYS_fsmount, fd, FSMOUNT_CLOEXEC, 0)).map_err(failed)
    }
}

/// The errno is left to the caller. SAFETY: this must be what a system call that makes a descriptor has just returned.
pub unsafe fn new_descriptor(result: c_long) -> std::result::Result<OwnedFd, i32> {
    match result {
        -1 => Err(last_errno()),
        fd => Ok(OwnedFd::from_raw_fd(fd as RawFd)),
    }
}

/// RLIMIT_NOFILE.
pub fn open_files() -> Result<libc::rlimit> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the structure is ours.
    check(
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) },
        || "read the limit of open files".to_string(),
    )?;
    Ok(limit)
}
