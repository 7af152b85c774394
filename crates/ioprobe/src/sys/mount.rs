//! Direct calls of mount(2) and umount2(2).
//!
//! The mount program reads and writes its own tables and merges options in ways that hide what was
//! requested (a remount of a noatime mount with relatime stays noatime). Here each option is either
//! a flag or part of the file system's data.

use libc::c_ulong;
use serde_json::{json, Value};

use crate::error::{Doing, Result};
use crate::protocol;
use crate::sys::{c_text, check};

pub fn mount(request: protocol::Mount) -> Result<Value> {
    let (flags, data) = flags_and_data(&request.options);
    let (source, target) = (c_text(&request.source)?, c_text(&request.target)?);
    let (kind, data) = (c_text(&request.r#type)?, c_text(&data)?);
    check(
        // SAFETY: all strings end with NUL.
        unsafe {
            libc::mount(
                source.as_ptr(),
                target.as_ptr(),
                kind.as_ptr(),
                flags,
                data.as_ptr().cast(),
            )
        },
        || {
            format!(
                "mount {} on {} as {} with {:?}",
                request.source, request.target, request.r#type, request.options
            )
        },
    )?;
    Ok(json!({}))
}

/// Unmount, never lazily: a busy mount is an error that the conductor must see.
pub fn unmount(request: protocol::Unmount) -> Result<Value> {
    let target = c_text(&request.target)?;
    rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty())
        .doing(|| format!("unmount {}", request.target))?;
    Ok(json!({}))
}

/// Split options into the flags of mount(2) and the text that the file system parses. Of ro and rw,
/// and of lazytime and nolazytime, the later one wins, as in the file system's own parsing.
fn flags_and_data(options: &[String]) -> (c_ulong, String) {
    let mut flags = 0;
    let mut data = Vec::new();
    for option in options {
        match option.as_str() {
            "ro" => flags |= libc::MS_RDONLY,
            "rw" => flags &= !libc::MS_RDONLY,
            "noatime" => flags |= libc::MS_NOATIME,
            "relatime" => flags |= libc::MS_RELATIME,
            "strictatime" => flags |= libc::MS_STRICTATIME,
            "nodiratime" => flags |= libc::MS_NODIRATIME,
            "lazytime" => flags |= libc::MS_LAZYTIME,
            "nolazytime" => flags &= !libc::MS_LAZYTIME,
            "sync" => flags |= libc::MS_SYNCHRONOUS,
            "dirsync" => flags |= libc::MS_DIRSYNC,
            "nosuid" => flags |= libc::MS_NOSUID,
            "nodev" => flags |= libc::MS_NODEV,
            "noexec" => flags |= libc::MS_NOEXEC,
            "remount" => flags |= libc::MS_REMOUNT,
            // with remount: only the flags of this mount, not those of its file system
            "bind" => flags |= libc::MS_BIND,
            other => data.push(other),
        }
    }
    (flags, data.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mount_knows_is_a_flag_and_the_rest_is_data() {
        let options = [
            "ro",
            "noatime",
            "commit=30",
            "rw",
            "data=ordered",
            "remount",
        ];
        let (flags, data) = flags_and_data(&options.map(String::from));
        assert_eq!(flags, libc::MS_NOATIME | libc::MS_REMOUNT);
        assert_eq!(data, "commit=30,data=ordered");
    }
}
