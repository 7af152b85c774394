//! Write-back by device, from debugfs: inodes on the dirty lists, and pages dirtied and written
//! back.
//!
//! debugfs is mounted detached, for this process only. Where that is not allowed (no root, a
//! locked-down kernel, before Linux 5.2) these values are missing.

use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};

use super::{lines, number, pread};
use crate::sys::mount_nowhere;

/// The mounted debugfs, open as long as the probe lives.
pub struct Tree(Option<OwnedFd>);

/// The write-back state of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteBack {
    /// Inodes to write back: dirty, and being written.
    pub inodes: u64,
    /// Inodes of which only a timestamp is dirty (lazytime).
    pub inodes_by_time: u64,
    /// Since the device appeared, accurate to some pages per CPU.
    pub dirtied_bytes: u64,
    pub written_bytes: u64,
}

impl Tree {
    pub fn none() -> Self {
        Tree(None)
    }

    pub fn open() -> Self {
        Tree(mount_nowhere("debugfs").ok())
    }

    /// Open the write-back statistics of a device; None if they are not available.
    pub fn of_device(&self, name: &str) -> Option<File> {
        let tree = self.0.as_ref()?;
        let own = fs::read_link(format!("/sys/class/block/{name}/bdi"));
        // A partition uses its disk's.
        let link = own.or_else(|_| fs::read_link(format!("/sys/class/block/{name}/../bdi")));
        let path = format!("bdi/{}/stats", link.ok()?.file_name()?.to_str()?);
        let path = CString::new(path).ok()?;
        // SAFETY: the path ends with NUL; the descriptor is new and ours.
        unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            match libc::openat(tree.as_raw_fd(), path.as_ptr(), flags) {
                -1 => None,
                fd => Some(File::from_raw_fd(fd)),
            }
        }
    }
}

pub fn read(file: &Option<File>) -> Option<WriteBack> {
    let mut room = [0; 2048];
    parse(pread(file, &mut room)?)
}

/// Parse lines of a name, a colon and a number, some of them in kB.
fn parse(text: &[u8]) -> Option<WriteBack> {
    let value = |name: &[u8]| {
        let line = lines(text).find(|line| line.starts_with(name))?;
        let mut words = line[name.len()..].split(|byte| *byte == b' ');
        number(words.find(|word| !word.is_empty())?)
    };
    Some(WriteBack {
        inodes: value(b"b_dirty:")? + value(b"b_io:")? + value(b"b_more_io:")?,
        inodes_by_time: value(b"b_dirty_time:").unwrap_or(0),
        dirtied_bytes: value(b"BdiDirtied:")?.wrapping_mul(1024),
        written_bytes: value(b"BdiWritten:")?.wrapping_mul(1024),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inodes_and_bytes_are_found_among_the_other_lines() {
        let text = b"BdiWriteback:                0 kB\nBdiDirtied:             40 kB\nBdiWritten:              8 kB\n\
            b_dirty:                    17\nb_io:                        2\nb_more_io:                   1\n\
            b_dirty_time:                3\n";
        let found = WriteBack {
            inodes: 20,
            inodes_by_time: 3,
            dirtied_bytes: 40 * 1024,
            written_bytes: 8 * 1024,
        };
        assert_eq!(parse(text), Some(found));
        assert_eq!(parse(b"nothing of it\n"), None);
    }
}
