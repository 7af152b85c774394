//! Counts the fragments of files by FIEMAP (Documentation/filesystems/fiemap.rst).
//!
//! A fragment is a run that is contiguous on the disk. File systems split such runs for reasons of
//! their own (unwritten and written parts, the maximum extent length of the format), so adjacent
//! extents are merged, as filefrag does.

use std::os::unix::io::{AsRawFd, OwnedFd};

use serde_json::{json, Value};

use super::cache::open_any_way;
use super::Registry;
use crate::error::{last_errno, Error, Result};
use crate::protocol::OfFiles;

const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
const FIEMAP_FLAG_SYNC: u32 = 1;
const FIEMAP_EXTENT_LAST: u32 = 1;
/// The position is unknown, or not decided yet, or the content is between metadata.
const NO_POSITION: u32 = 0x2 | 0x4 | 0x200;
const AT_ONCE: usize = 512;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

/// `struct fiemap` of linux/fiemap.h, with space for N extents.
#[repr(C)]
struct Map<const N: usize> {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; N],
}

/// Count the fragments of the selected files. Files without blocks do not count as files.
pub fn get(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let (mut files, mut extents, mut most) = (0, 0, 0);
    for index in set.select(&request.files)? {
        let path = set.path(index);
        let found = pieces(&open_any_way(&path)?, &path)?;
        files += u64::from(found > 0);
        extents += found;
        most = most.max(found);
    }
    Ok(json!({"files": files, "extents": extents, "most": most}))
}

/// Return the number of fragments of one file, after delayed allocation has been flushed.
pub fn pieces(file: &OwnedFd, path: &str) -> Result<u64> {
    let (mut found, mut expected, mut start) = (0, None, 0);
    loop {
        let map = map_from(file, start, path)?;
        let extents = &map.extents[..map.mapped as usize];
        for extent in extents {
            found += u64::from(expected != Some(extent.physical));
            expected = Some(extent.physical + extent.length);
            start = extent.logical + extent.length;
        }
        match extents.last() {
            Some(extent) if extent.flags & FIEMAP_EXTENT_LAST == 0 => {}
            _ => return Ok(found),
        }
    }
}

/// Return the number of extents of a file, and the byte of the device at which the first begins
/// (0: unknown), as far as they are on the disk: nothing is written back for it. None if the file
/// system does not say.
pub fn on_disk(file: &OwnedFd) -> Option<(u32, u64)> {
    let all = ask::<0>(file, 0, 0).ok()?;
    let first = ask::<1>(file, 0, 0).ok()?.extents[0];
    let position = match first.flags & NO_POSITION {
        0 => first.physical,
        _ => 0,
    };
    Some((all.mapped, position))
}

fn map_from(file: &OwnedFd, start: u64, path: &str) -> Result<Box<Map<AT_ONCE>>> {
    ask(file, start, FIEMAP_FLAG_SYNC).map_err(|errno| match errno {
        libc::EOPNOTSUPP | libc::ENOTTY => Error::unsupported(format!(
            "count the extents of {path}: its file system has no FIEMAP ({})",
            crate::error::errno_text(errno)
        )),
        errno => Error::errno(format!("count the extents of {path}"), errno),
    })
}

/// Ask for N extents from a byte of the file on. Without room for any, they are only counted. An
/// error is an errno.
fn ask<const N: usize>(
    file: &OwnedFd,
    start: u64,
    flags: u32,
) -> std::result::Result<Box<Map<N>>, i32> {
    let mut map = Box::new(Map {
        start,
        length: u64::MAX - start,
        flags,
        mapped: 0,
        room: N as u32,
        reserved: 0,
        extents: [Extent::default(); N],
    });
    // SAFETY: we own the structure, it has the kernel's layout, and it states how many extents fit
    // into it.
    match unsafe {
        libc::ioctl(
            file.as_raw_fd(),
            FS_IOC_FIEMAP as _,
            &mut *map as *mut Map<N>,
        )
    } {
        -1 => Err(last_errno()),
        _ => Ok(map),
    }
}
