//! Removes a name or a tree, but never anything that is mounted below it or behind a link.
//!
//! A lab's folder may have a file system mounted in it, or contain a link to someone's home
//! directory. So the walk goes from open folder to open folder, and the kernel itself (openat2,
//! RESOLVE_NO_XDEV) refuses to enter mounts, including bind mounts.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{unlinkat, AtFlags, Dir};
use rustix::io::Errno;
use serde_json::{json, Value};

use crate::error::{Error, Result};
use crate::protocol::Remove;
use crate::sys::{hold_parent, open_at, stat_at, ResolveFlags};

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

/// Remove a whole tree. Returns the number of names removed. A missing tree is fine.
pub fn tree(path: &str) -> Result<u64> {
    match parent_and_name(path)? {
        Some((folder, name)) => Walk { path }.entry(&folder, &name),
        None => Ok(0),
    }
}

/// Remove the content of a folder, but not the folder. A missing folder is fine.
fn contents(path: &str) -> Result<u64> {
    let walk = Walk { path };
    match parent_and_name(path)? {
        Some((folder, name)) => match stat_at(&folder, &name) {
            Err(libc::ENOENT) => Ok(0),
            _ => walk.contents(&walk.enter(&folder, &name)?, &name),
        },
        None => Ok(0),
    }
}

/// Remove one name: a file, a link itself, or an empty folder.
fn single(path: &str) -> Result<u64> {
    let (folder, name) = match parent_and_name(path)? {
        Some(found) => found,
        None => return Ok(0),
    };
    let walk = Walk { path };
    match stat_at(&folder, &name) {
        Err(libc::ENOENT) => Ok(0),
        Err(errno) => Err(walk.failed(&name, errno)),
        Ok(status) if status.st_mode & libc::S_IFMT == libc::S_IFDIR => {
            walk.enter(&folder, &name)?;
            walk.unlink(&folder, &name, AtFlags::REMOVEDIR)
        }
        Ok(_) => walk.unlink(&folder, &name, AtFlags::empty()),
    }
}

/// Open the parent folder of a path; None if it is missing.
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
    fn entry(&self, folder: &OwnedFd, name: &CStr) -> Result<u64> {
        let status = match stat_at(folder, name) {
            Err(libc::ENOENT) => return Ok(0),
            other => other.map_err(|errno| self.failed(name, errno))?,
        };
        if status.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return self.unlink(folder, name, AtFlags::empty());
        }
        let inside = self.enter(folder, name)?;
        Ok(self.contents(&inside, name)? + self.unlink(folder, name, AtFlags::REMOVEDIR)?)
    }

    fn contents(&self, inside: &OwnedFd, name: &CStr) -> Result<u64> {
        let mut removed = 0;
        for entry in names(inside).map_err(|errno| self.failed(name, errno))? {
            removed += self.entry(inside, &entry)?;
        }
        Ok(removed)
    }

    fn unlink(&self, folder: &OwnedFd, name: &CStr, flags: AtFlags) -> Result<u64> {
        match unlinkat(folder, name, flags) {
            Ok(()) => Ok(1),
            Err(Errno::NOENT) => Ok(0),
            Err(errno) => Err(self.failed(name, errno.raw_os_error())),
        }
    }

    /// Open a folder, if it is on the same mount.
    fn enter(&self, folder: &OwnedFd, name: &CStr) -> Result<OwnedFd> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        open_at(
            folder,
            name,
            flags,
            ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS,
        )
        .map_err(|errno| match errno {
            libc::EXDEV => Error::errno(
                format!(
                    "remove {}: {} is a mount point; unmount it first",
                    self.path,
                    name.to_string_lossy()
                ),
                libc::EXDEV,
            ),
            errno => self.failed(name, errno),
        })
    }

    fn failed(&self, name: &CStr, errno: i32) -> Error {
        let name = name.to_string_lossy();
        Error::errno(format!("remove {} (at {name})", self.path), errno)
    }
}

/// Return all names in an open folder except `.` and `..`, read before any is removed.
fn names(folder: &OwnedFd) -> std::result::Result<Vec<CString>, i32> {
    let entries = Dir::read_from(folder).map_err(Errno::raw_os_error)?;
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
    let names: rustix::io::Result<Vec<CString>> = names.collect();
    let mut names = names.map_err(Errno::raw_os_error)?;
    names.retain(|name| name.as_c_str() != c"." && name.as_c_str() != c"..");
    Ok(names)
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
