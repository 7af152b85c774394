//! What the kernel's tracepoints are numbered, from tracefs.
//!
//! Where nobody has mounted it, an instance of our own is made that appears in no mount namespace and goes with its descriptor.

use std::os::unix::io::{AsRawFd, OwnedFd};

use crate::error::{Doing, Error, Result};
use crate::syscall::mount_nowhere;

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
        let own = mount_nowhere("tracefs")?;
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

    /// Where in its record a field of 4 bytes of a tracepoint lies.
    pub fn offset(&self, name: &str, field: &str) -> Result<usize> {
        match place_in(&self.read(name, "format")?, field) {
            Some((offset, 4)) => Ok(offset),
            found => Err(Error::unsupported(format!(
                "this kernel's tracepoint {name}: wanted a field {field} of 4 bytes, found {}",
                found.map_or("none".to_string(), |(_, size)| format!("one of {size}"))
            ))),
        }
    }

    fn read(&self, name: &str, file: &str) -> Result<String> {
        let path = format!("{}/events/{name}/{file}", self.place);
        std::fs::read_to_string(&path).doing(|| format!("read {file} of the tracepoint {name}"))
    }
}

/// Offset and size of a field. A line is "field:int sig; offset:8; size:4; signed:1;", with tabs between.
pub fn place_in(format: &str, field: &str) -> Option<(usize, usize)> {
    format.lines().find_map(|line| {
        let (declared, rest) = line.trim().strip_prefix("field:")?.split_once(';')?;
        let name = declared.rsplit(' ').next()?.split('[').next()?;
        let number = |key| -> Option<u16> {
            let mut parts = rest.split(';');
            parts.find_map(|part| part.trim().strip_prefix(key)?.parse().ok())
        };
        let place = (number("offset:")?.into(), number("size:")?.into());
        (name == field).then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_name_alone() {
        let format = "name: x\nformat:\n\tfield:int sig;\toffset:8;\tsize:4;\tsigned:1;\n\
                      \tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;\n\
                      \tfield:pid_t pid;\toffset:36;\tsize:4;\tsigned:1;\n";
        assert_eq!(place_in(format, "sig"), Some((8, 4)));
        assert_eq!(place_in(format, "comm"), Some((20, 16)));
        assert_eq!(place_in(format, "pid"), Some((36, 4)));
        assert_eq!(place_in(format, "si"), None);
    }
}
