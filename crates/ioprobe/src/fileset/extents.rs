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

/// `struct fiemap` of linux/fiemap.h, with space for extents.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
    extents: [Extent; AT_ONCE],
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

fn map_from(file: &OwnedFd, start: u64, path: &str) -> Result<Box<Map>> {
    let mut map = Box::new(Map {
        start,
        length: u64::MAX - start,
        flags: FIEMAP_FLAG_SYNC,
        mapped: 0,
        room: AT_ONCE as u32,
        reserved: 0,
        extents: [Extent::default(); AT_ONCE],
    });
    // SAFETY: we own the structure, it has the kernel's layout, and it states how many extents fit
    // into it.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &mut *map as *mut Map) } {
        -1 => match last_errno() {
            errno @ (libc::EOPNOTSUPP | libc::ENOTTY) => Err(Error::unsupported(format!(
                "count the extents of {path}: its file system has no FIEMAP ({})",
                crate::error::errno_text(errno)
            ))),
            errno => Err(Error::errno(format!("count the extents of {path}"), errno)),
        },
        _ => Ok(map),
    }
}
