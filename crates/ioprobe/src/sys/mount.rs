//! mount(2) and umount2(2) themselves.
//!
//! The mount program reads and writes tables of its own and merges options in ways that hide what was asked (a remount
//! with relatime of a noatime mount stays noatime). Here an option is a flag or it is the file system's data.

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
        // SAFETY: all texts end with NUL.
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

/// Never lazy: a busy mount is an error that the conductor has to hear of.
pub fn unmount(request: protocol::Unmount) -> Result<Value> {
    let target = c_text(&request.target)?;
    rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty())
        .doing(|| format!("unmount {}", request.target))?;
    Ok(json!({}))
}

/// Splits options into mount(2)'s flags and the text that the file system parses; later ones win, as they do for it.
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
