//! What the kernel's tracepoints are numbered, from tracefs.
//!
//! Where nobody has mounted it, an instance of our own is made that appears in no mount namespace and goes with its descriptor.

use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_int, c_long};

use crate::error::{Doing, Error, Result};

const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

pub struct Tracefs {
    place: String,
    _own: Option<OwnedFd>,
}

impl Tracefs {
    pub fn find() -> Result<Self> {
        for place in PLACES {
            if std::fs::metadata(format!("{place}/events")).is_ok() {
                return Ok(Tracefs {
                    place: place.to_string(),
                    _own: None,
                });
            }
        }
        let own = mounted_nowhere()?;
        Ok(Tracefs {
            place: format!("/proc/self/fd/{}", own.as_raw_fd()),
            _own: Some(own),
        })
    }

    /// The number of a tracepoint ("raw_syscalls/sys_enter").
    pub fn id(&self, name: &str) -> Result<u64> {
        let text = self.read(name, "id")?;
        text.trim().parse().map_err(|_| {
            Error::verify(format!(
                "tracepoint {name}: wanted a number, found {text:?}"
            ))
        })
    }

    /// Where in its record a field of a tracepoint lies.
    pub fn offset(&self, name: &str, field: &str) -> Result<usize> {
        offset_in(&self.read(name, "format")?, field).ok_or_else(|| {
            Error::unsupported(format!(
                "this kernel's tracepoint {name} has no field {field}"
            ))
        })
    }

    fn read(&self, name: &str, file: &str) -> Result<String> {
        let path = format!("{}/events/{name}/{file}", self.place);
        std::fs::read_to_string(&path).doing(|| format!("read {file} of the tracepoint {name}"))
    }
}

/// A line is "field:int sig; offset:8; size:4; signed:1;", with tabs between.
fn offset_in(format: &str, field: &str) -> Option<usize> {
    format.lines().find_map(|line| {
        let (declared, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        let name = declared.rsplit(' ').next()?.split('[').next()?;
        let offset = rest.trim().strip_prefix("offset:")?.split(';').next()?;
        (name == field).then(|| offset.parse().ok())?
    })
}

/// fsopen, fsconfig, fsmount (Linux 5.2): a mounted file system that no path leads to.
fn mounted_nowhere() -> Result<OwnedFd> {
    const CLOSE_ON_EXEC: c_int = 1;
    const CREATE: c_int = 6;
    let done = |result: c_long| {
        if result == -1 {
            Err(Error::last_os("mount tracefs"))
        } else {
            Ok(result as c_int)
        }
    };
    // SAFETY: the text ends with NUL; the descriptors are new and ours.
    unsafe {
        let name = b"tracefs\0".as_ptr();
        let made = done(libc::syscall(libc::SYS_fsopen, name, CLOSE_ON_EXEC))?;
        let made = OwnedFd::from_raw_fd(made);
        let none = std::ptr::null::<u8>();
        done(libc::syscall(
            libc::SYS_fsconfig,
            made.as_raw_fd(),
            CREATE,
            none,
            none,
            0,
        ))?;
        let mounted = done(libc::syscall(
            libc::SYS_fsmount,
            made.as_raw_fd(),
            CLOSE_ON_EXEC,
            0,
        ))?;
        Ok(OwnedFd::from_raw_fd(mounted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_name_alone() {
        let format = "name: x\nformat:\n\tfield:int sig;\toffset:8;\tsize:4;\tsigned:1;\n\
                      \tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;\n\
                      \tfield:pid_t pid;\toffset:36;\tsize:4;\tsigned:1;\n";
        assert_eq!(offset_in(format, "sig"), Some(8));
        assert_eq!(offset_in(format, "comm"), Some(20));
        assert_eq!(offset_in(format, "pid"), Some(36));
        assert_eq!(offset_in(format, "si"), None);
    }
}
