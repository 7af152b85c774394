//! Removes a name, or a tree, and never anything that only hangs below it.
//!
//! A lab's folder may have a file system mounted in it, or hold a link to somebody's home. So the walk goes from open
//! folder to open folder, and the kernel itself (openat2, RESOLVE_NO_XDEV) refuses to enter a mount, bind mounts too.

use std::ffi::{CStr, CString};
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

use libc::c_int;
use serde_json::{json, Value};

use crate::error::{last_errno, Error, Result};
use crate::protocol::Remove;
use crate::sys::{check, hold_parent, open_at, stat_at, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV};

pub fn remove(request: Remove) -> Result<Value> {
    let removed = if request.keep {
        contents(&request.path)?
    } else if request.recursive {
        tree(&request.path)?
    } else {
        single(&request.path)?
    };
    Ok(json!({ "removed": removed }))
}

/// Takes a whole tree away; returns how many names went. A missing one is fine.
pub fn tree(path: &str) -> Result<u64> {
    match parent_and_name(path)? {
        Some((folder, name)) => Walk { path }.entry(folder.as_raw_fd(), &name),
        None => Ok(0),
    }
}

/// Takes away what a folder holds, and leaves the folder; a missing one is fine.
fn contents(path: &str) -> Result<u64> {
    let walk = Walk { path };
    match parent_and_name(path)? {
        Some((folder, name)) => match stat_at(folder.as_raw_fd(), &name, libc::AT_SYMLINK_NOFOLLOW)
        {
            Err(libc::ENOENT) => Ok(0),
            _ => walk.contents(&walk.enter(folder.as_raw_fd(), &name)?, &name),
        },
        None => Ok(0),
    }
}

/// Takes one name away: a file, a link itself, an empty folder.
fn single(path: &str) -> Result<u64> {
    let (folder, name) = match parent_and_name(path)? {
        Some(found) => found,
        None => return Ok(0),
    };
    let walk = Walk { path };
    match stat_at(folder.as_raw_fd(), &name, libc::AT_SYMLINK_NOFOLLOW) {
        Err(libc::ENOENT) => Ok(0),
        Err(errno) => Err(walk.failed(&name, errno)),
        Ok(status) if status.st_mode & libc::S_IFMT == libc::S_IFDIR => {
            walk.enter(folder.as_raw_fd(), &name)?;
            walk.unlink(folder.as_raw_fd(), &name, libc::AT_REMOVEDIR)
        }
        Ok(_) => walk.unlink(folder.as_raw_fd(), &name, 0),
    }
}

/// The folder that holds the name; none if it is missing itself.
fn parent_and_name(path: &str) -> Result<Option<(OwnedFd, CString)>> {
    match hold_parent(path, &format!("remove {path}")) {
        Ok(found) => Ok(Some(found)),
        Err(Error::Os {
            errno: libc::ENOENT,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}

struct Walk<'a> {
    path: &'a str,
}

impl Walk<'_> {
    fn entry(&self, folder: RawFd, name: &CStr) -> Result<u64> {
        let status = match stat_at(folder, name, libc::AT_SYMLINK_NOFOLLOW) {
            Err(libc::ENOENT) => return Ok(0),
            other => other.map_err(|errno| self.failed(name, errno))?,
        };
        if status.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return self.unlink(folder, name, 0);
        }
        let inside = self.enter(folder, name)?;
        Ok(self.contents(&inside, name)? + self.unlink(folder, name, libc::AT_REMOVEDIR)?)
    }

    fn contents(&self, inside: &OwnedFd, name: &CStr) -> Result<u64> {
        let mut removed = 0;
        for entry in names(inside).map_err(|errno| self.failed(name, errno))? {
            removed += self.entry(inside.as_raw_fd(), &entry)?;
        }
        Ok(removed)
    }

    fn unlink(&self, folder: RawFd, name: &CStr, flags: c_int) -> Result<u64> {
        // SAFETY: `name` ends with NUL.
        match unsafe { libc::unlinkat(folder, name.as_ptr(), flags) } {
            0 => Ok(1),
            _ => match last_errno() {
                libc::ENOENT => Ok(0),
                errno => Err(self.failed(name, errno)),
            },
        }
    }

    /// Opens a folder of this very mount.
    fn enter(&self, folder: RawFd, name: &CStr) -> Result<OwnedFd> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        open_at(folder, name, flags, RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS).map_err(|errno| {
            match errno {
                libc::EXDEV => Error::errno(
                    format!(
                        "remove {}: {} is a mount point, which is not crossed",
                        self.path,
                        name.to_string_lossy()
                    ),
                    libc::EXDEV,
                ),
                errno => self.failed(name, errno),
            }
        })
    }

    fn failed(&self, name: &CStr, errno: i32) -> Error {
        let name = name.to_string_lossy();
        Error::errno(format!("remove {} (at {name})", self.path), errno)
    }
}

/// All names of an open folder but `.` and `..`, read before any is removed.
fn names(folder: &OwnedFd) -> std::result::Result<Vec<CString>, i32> {
    // SAFETY: the stream owns the duplicate and is closed below; an entry is valid until the next call.
    unsafe {
        let duplicate = check(
            libc::fcntl(folder.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 3),
            String::new,
        )
        .map_err(|_| last_errno())?;
        let stream = libc::fdopendir(duplicate);
        if stream.is_null() {
            let errno = last_errno();
            libc::close(duplicate);
            return Err(errno);
        }
        let mut names = Vec::new();
        let outcome = loop {
            *libc::__errno_location() = 0;
            let entry = libc::readdir64(stream);
            if entry.is_null() {
                break match last_errno() {
                    0 => Ok(names),
                    errno => Err(errno),
                };
            }
            let name = CStr::from_ptr((*entry).d_name.as_ptr());
            if name.to_bytes() != b"." && name.to_bytes() != b".." {
                names.push(name.to_owned());
            }
        };
        libc::closedir(stream);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_name_is_refused() {
        for path in ["/", "", ".", "/tmp/..", "/tmp/."] {
            assert!(matches!(tree(path), Err(Error::BadRequest(_))), "{path}");
        }
    }
}
