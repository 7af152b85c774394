//! The page cache of a set: evict, warm, hold, and query residency.
//!
//! Only clean pages can be dropped, so dirty ones are written first. Write-back is started for all
//! files before waiting for any, and a single fdatasync commits for all of them: ten thousand
//! flushes of the disk would take seconds. cachestat (Linux 6.5) shows which files have anything to
//! write. All of this opens the files, which caches their inodes: cold inodes need an unmount, and
//! the evidence for cold data is the device's counters.

use std::os::unix::fs::MetadataExt;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{seek, SeekFrom};
use rustix::io::Errno;
use serde_json::{json, Value};

use super::{shared_out, FileSet, Registry};
use crate::error::{Doing, Error, Result};
use crate::protocol::{EvictTree, OfFiles, Paths, Warm};
use crate::sys::files::syncfs;
use crate::sys::{
    c_text, check, drop_pages, open, open_quietly, open_quietly_through, read_full, stat, stat_of,
    try_open, write_back, ITSELF,
};

/// `struct cachestat` of linux/mman.h.
#[repr(C)]
#[derive(Default)]
struct Cachestat {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

pub fn evict(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let paths: Vec<_> = set
        .select(&request.files)?
        .iter()
        .map(|index| set.path(*index))
        .collect();
    evict_all(&paths)?;
    Ok(json!({"evicted": paths.len()}))
}

/// Evict files named by their paths; those that are gone by now are left out. `left_bytes`: what the
/// kernel has kept, as it does if another process has it mapped or locked.
pub fn evict_files(request: Paths) -> Result<Value> {
    let paths = there(request.paths);
    evict_all(&paths)?;
    let mut left = 0;
    for path in &paths {
        let file = open_any_way(path)?;
        let size = stat_of(&file, path)?.st_size as u64;
        left += cached(&file, size, path)?.0 * page_size();
    }
    Ok(json!({"evicted": paths.len(), "left_bytes": left}))
}

fn there(paths: Vec<String>) -> Vec<String> {
    let is_file =
        |path: &String| std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    paths.into_iter().filter(is_file).collect()
}

fn evict_all(paths: &[String]) -> Result<()> {
    let mut dirty = Vec::new();
    for path in paths {
        let file = open_any_way(path)?;
        if cachestat(&file).is_some_and(|c| c.dirty + c.writeback == 0) {
            drop_pages(&file, path)?;
        } else {
            write_back(&file, (0, 0), libc::SYNC_FILE_RANGE_WRITE, || {
                format!("write back {path}")
            })?;
            dirty.push(path);
        }
    }
    let whole = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    for path in &dirty {
        write_back(&open_any_way(path)?, (0, 0), whole, || {
            format!("write back {path}")
        })?;
    }
    // One journal commit and one flush for all of them.
    if let Some(path) = dirty.last() {
        let file = open_any_way(path)?;
        rustix::fs::fdatasync(&file).doing(|| format!("fdatasync {path}"))?;
    }
    for path in &dirty {
        drop_pages(&open_any_way(path)?, path)?;
    }
    Ok(())
}

/// Drop the cached pages of every regular file below a folder, after a sync of its file system.
/// Links are not followed; other file systems mounted below are skipped.
pub fn evict_tree(request: EvictTree) -> Result<Value> {
    syncfs(&request.path)?;
    let device = stat(&request.path, false)?.st_dev;
    let (mut files, mut bytes) = (0_u64, 0_u64);
    let mut folders = vec![PathBuf::from(&request.path)];
    while let Some(folder) = folders.pop() {
        let doing = || format!("list {}", folder.display());
        for entry in std::fs::read_dir(&folder).doing(doing)? {
            let entry = entry.doing(doing)?;
            let status = entry.metadata().doing(doing)?;
            if status.dev() != device {
                continue;
            }
            if status.is_dir() {
                folders.push(entry.path());
            } else if status.is_file() {
                let path = entry.path().display().to_string();
                drop_pages(&open_any_way(&path)?, &path)?;
                files += 1;
                bytes += status.len();
            }
        }
    }
    Ok(json!({"files": files, "bytes": bytes}))
}

/// Open a file for reading or, if its mode forbids that, for writing: good enough here.
pub fn open_any_way(path: &str) -> Result<OwnedFd> {
    match open_quietly(path) {
        Err(Error::Os {
            errno: libc::EACCES,
            ..
        }) => try_open(&c_text(path)?, libc::O_WRONLY | ITSELF, 0)
            .map_err(|errno| Error::errno(format!("open {path}"), errno)),
        other => other,
    }
}

/// Read everything once, as a run would, through the same view.
pub fn warm(request: Warm, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let view = request.view.as_deref();
    let files = set.select_in(view, &request.files)?;
    let set: &FileSet = set;
    let read = shared_out(&files, |part| {
        let mut buffer = vec![0; 1 << 20];
        let mut bytes = 0;
        for index in part {
            let path = set.path_through(view, *index)?;
            let file = match view {
                None => open_quietly(&path)?,
                Some(_) => open_quietly_through(&path)?,
            };
            bytes += read_whole(&file, &mut buffer, &path)?;
        }
        Ok(bytes)
    })?;
    if request.names {
        // A name by which a file has just been opened is cached; a link has its own inode.
        let opened = view.is_none() && request.files.is_none();
        for folder in set.folders(view) {
            warm_names(&folder, opened)?;
        }
    }
    Ok(json!({ "bytes": read.into_iter().sum::<u64>() }))
}

/// Read files named by their paths; those that are gone by now are left out.
pub fn warm_files(request: Paths) -> Result<Value> {
    let mut buffer = vec![0; 1 << 20];
    let mut bytes = 0;
    for path in there(request.paths) {
        bytes += read_whole(&open_quietly(&path)?, &mut buffer, &path)?;
    }
    Ok(json!({ "bytes": bytes }))
}

/// The data of files, in memory until this value is dropped.
///
/// The kernel may drop pages of the page cache soon after they were read, even with much memory
/// free: a DAMON scheme may reclaim all pages that no process has mapped, in regions of memory that
/// looked idle. It leaves locked pages alone. Without the right to lock, they are only mapped.
#[derive(Default)]
pub struct Held {
    mapped: Vec<(*mut libc::c_void, usize)>,
}

impl Held {
    /// Read these files and hold them, without their holes: a read of a hole needs no device.
    ///
    /// Their access times are updated as by any reader, so that the work finds nothing to update.
    pub fn new(paths: &[String]) -> Result<Self> {
        let mut held = Held::default();
        let mut buffer = Vec::new();
        for path in paths {
            buffer.resize(1 << 20, 0);
            let file = open(path, libc::O_RDONLY | ITSELF, 0)?;
            let mut end = 0;
            while let Some(start) = sought(&file, SeekFrom::Data(end), path)? {
                end = sought(&file, SeekFrom::Hole(start), path)?.unwrap_or(start);
                if end <= start {
                    break; // cut off meanwhile
                }
                read_range(&file, (start, end), &mut buffer, path)?;
                held.map(&file, (start, end), path)?;
            }
        }
        Ok(held)
    }

    fn map(&mut self, file: &OwnedFd, (start, end): (u64, u64), path: &str) -> Result<()> {
        let start = start / page_size() * page_size();
        let length = (end - start) as usize;
        // SAFETY: we own the mapping until `drop`, and never read it.
        unsafe {
            let address = libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                start as libc::off_t,
            );
            if address == libc::MAP_FAILED {
                return Err(Error::last_os(format!("map {path}")));
            }
            self.mapped.push((address, length));
            libc::mlock(address, length); // fails beyond RLIMIT_MEMLOCK: then mapped is all we get
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for (address, length) in self.mapped.drain(..) {
            // SAFETY: we own it, and nothing points into it.
            unsafe { libc::munmap(address, length) };
        }
    }
}

/// Return the offset of the next data or hole, or None behind the last data.
fn sought(file: &OwnedFd, place: SeekFrom, path: &str) -> Result<Option<u64>> {
    match seek(file, place) {
        Err(Errno::NXIO) => Ok(None),
        found => Ok(Some(found.doing(|| format!("look for data in {path}"))?)),
    }
}

fn read_range(
    file: &OwnedFd,
    (start, end): (u64, u64),
    buffer: &mut [u8],
    path: &str,
) -> Result<()> {
    seek(file, SeekFrom::Start(start)).doing(|| format!("seek in {path}"))?;
    let mut left = end - start;
    while left > 0 {
        let piece = left.min(buffer.len() as u64) as usize;
        match read_full(file, &mut buffer[..piece], path)? {
            0 => break,
            read => left -= read as u64,
        }
    }
    Ok(())
}

fn read_whole(file: &OwnedFd, buffer: &mut [u8], path: &str) -> Result<u64> {
    let mut bytes = 0;
    loop {
        let n = read_full(file, buffer, path)?;
        bytes += n as u64;
        if n < buffer.len() {
            return Ok(bytes); // it has met the end of the file
        }
    }
}

/// List a folder and, unless its files were just `opened`, look at each name.
fn warm_names(folder: &str, opened: bool) -> Result<()> {
    let doing = || format!("list {folder}");
    for entry in std::fs::read_dir(folder).doing(doing)? {
        let name = entry.doing(doing)?.file_name();
        if !opened {
            stat(&format!("{folder}/{}", name.to_string_lossy()), false)?;
        }
    }
    Ok(())
}

pub fn residency(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let page = page_size();
    let (mut pages, mut resident, mut dirty) = (0, 0, Some(0));
    for index in set.select(&request.files)? {
        let path = set.path(index);
        let file = open_any_way(&path)?;
        let size = stat_of(&file, &path)?.st_size as u64;
        pages += size.div_ceil(page);
        let (cached, unwritten) = cached(&file, size, &path)?;
        resident += cached;
        dirty = dirty.zip(unwritten).map(|(sum, unwritten)| sum + unwritten);
    }
    Ok(json!({"pages": pages, "resident": resident, "dirty": dirty}))
}

/// Return the number of cached pages of an open file and, if the kernel reports it, how many are
/// not yet written back.
pub fn cached(file: &OwnedFd, size: u64, path: &str) -> Result<(u64, Option<u64>)> {
    match cachestat(file) {
        Some(found) => Ok((found.cached, Some(found.dirty + found.writeback))),
        None => Ok((mincore(file, size, path)?, None)),
    }
}

/// Return None if the kernel lacks cachestat or fails for this file.
fn cachestat(file: &OwnedFd) -> Option<Cachestat> {
    const SYS_CACHESTAT: libc::c_long = 451; // the same on all architectures
    let whole = [0_u64; 2];
    let mut found = Cachestat::default();
    // SAFETY: we own both structures, and they have the kernel's layout.
    let result = unsafe {
        libc::syscall(
            SYS_CACHESTAT,
            file.as_raw_fd(),
            whole.as_ptr(),
            &mut found as *mut Cachestat,
            0,
        )
    };
    (result == 0).then_some(found)
}

pub fn page_size() -> u64 {
    rustix::param::page_size() as u64
}

fn mincore(file: &OwnedFd, size: u64, path: &str) -> Result<u64> {
    if size == 0 {
        return Ok(0);
    }
    let page = page_size();
    let mut pages = vec![0_u8; size.div_ceil(page) as usize];
    // SAFETY: we own the mapping from here to munmap, and it is never read.
    unsafe {
        let map = libc::mmap(
            std::ptr::null_mut(),
            size as usize,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        if map == libc::MAP_FAILED {
            return Err(Error::last_os(format!("map {path}")));
        }
        let result = check(
            libc::mincore(map, size as usize, pages.as_mut_ptr()),
            || format!("mincore {path}"),
        );
        libc::munmap(map, size as usize);
        result?;
    }
    Ok(pages.iter().filter(|page| **page & 1 == 1).count() as u64)
}
