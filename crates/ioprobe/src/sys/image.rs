//! Image files for loop devices: anonymous, fully allocated, gone when the probe ends.
//!
//! A file without a name cannot be left behind. It is fully allocated, so that no run pays for the
//! allocation or hits a full disk. tmpfs is refused: there the "disk" would be memory.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use libc::c_int;
use rustix::fs::{fallocate, fdatasync, openat, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Doing, Error, Result};
use crate::protocol::{Fill, Image};
use crate::sys::{c_text, drop_pages, hold, hold_parent, stat_of, write_all, write_back};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
/// Data in flight while filling, in bytes: enough to keep a disk busy, but little memory.
const STRIDE: usize = 64 << 20;

pub fn make(request: &Image) -> Result<OwnedFd> {
    let doing = || format!("make an image in {}", request.folder);
    if request.size == 0 || request.size % 4096 != 0 || i64::try_from(request.size).is_err() {
        return Err(Error::bad(format!(
            "{}: size: expected a multiple of 4096, found {}",
            doing(),
            request.size
        )));
    }
    // Held open from here on: a parent folder can be swapped, the one that was checked cannot.
    let folder = hold(&request.folder, libc::O_DIRECTORY, &doing())?;
    let magic = rustix::fs::fstatfs(&folder).doing(doing)?.f_type as u64 & 0xffff_ffff;
    if magic == TMPFS_MAGIC || magic == RAMFS_MAGIC {
        return Err(Error::bad(format!(
            "{}: is on a file system in memory (type {magic:#x}); choose a folder on a disk",
            doing()
        )));
    }
    let image = match &request.path {
        None => nameless(&folder, &request.folder)?,
        Some(path) => named_for_an_instant(path)?,
    };
    let allocated = fallocate(&image, FallocateFlags::empty(), 0, request.size);
    if allocated != Err(Errno::OPNOTSUPP) {
        allocated.doing(|| format!("{}: allocate {} bytes", doing(), request.size))?;
    } else {
        // Filling allocates blocks too, if less evenly.
        if request.fill == Fill::Allocate {
            return Err(Error::unsupported(format!(
                "{}: this file system cannot allocate without writing; use fill \"write\"",
                doing()
            )));
        }
    }
    if request.fill == Fill::Write {
        fill(&image, request.size)?;
    }
    let found = stat_of(&image, "the image")?;
    if found.st_size as u64 != request.size || (found.st_blocks as u64) * 512 < request.size {
        return Err(Error::verify(format!(
            "{}: expected {} allocated bytes, found size {} with {} bytes allocated",
            doing(),
            request.size,
            found.st_size,
            found.st_blocks * 512
        )));
    }
    Ok(image)
}

/// Create a file with O_TMPFILE; an `os` error EOPNOTSUPP if the file system does not support it.
fn nameless(held: &OwnedFd, folder: &str) -> Result<OwnedFd> {
    let flags = libc::O_TMPFILE | libc::O_RDWR;
    create_at(held, &c_text(".")?, flags).map_err(|errno| {
        // A kernel without O_TMPFILE sees a folder opened for writing.
        let errno = match errno {
            libc::EISDIR => libc::EOPNOTSUPP,
            errno => errno,
        };
        Error::errno(format!("make a file without a name in {folder}"), errno)
    })
}

/// Create a file and unlink it immediately. The conductor chose the name and has it in its journal.
fn named_for_an_instant(path: &str) -> Result<OwnedFd> {
    let (folder, name) = hold_parent(path, &format!("make {path}"))?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let image = create_at(&folder, &name, flags)
        .map_err(|errno| Error::errno(format!("make {path}"), errno))?;
    rustix::fs::unlinkat(&folder, &name, rustix::fs::AtFlags::empty())
        .doing(|| format!("unlink {path}"))?;
    Ok(image)
}

fn create_at(folder: &OwnedFd, name: &CStr, flags: c_int) -> std::result::Result<OwnedFd, i32> {
    let flags = OFlags::from_bits_retain(flags as u32) | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::from_bits_retain(0o600)).map_err(Errno::raw_os_error)
}

/// Write zeros through the page cache to the disk, so that no extent stays unwritten, and drop them
/// from the cache.
fn fill(image: &OwnedFd, size: u64) -> Result<()> {
    let zeros = vec![0; 1 << 20];
    let mut done = 0;
    while done < size {
        let stride = (size - done).min(STRIDE as u64);
        let mut left = stride as usize;
        while left > 0 {
            let n = left.min(zeros.len());
            write_all(image, &zeros[..n], "the image")?;
            left -= n;
        }
        let flags = libc::SYNC_FILE_RANGE_WRITE;
        write_back(image, (done, stride), flags, || {
            "start writing the image".to_string()
        })?;
        done += stride;
    }
    fdatasync(image).doing(|| "fdatasync the image")?;
    drop_pages(image, "the image")
}
