//! Image files for loop devices: anonymous, fully allocated, gone with the probe.
//!
//! A file without a name cannot be left behind. It is allocated in full so that no run pays for the allocation or meets a
//! full disk, and refused on tmpfs, where the "disk" would be memory.

use std::ffi::CStr;
use std::os::unix::io::{AsRawFd, OwnedFd};

use libc::{c_int, c_uint};

use crate::error::{last_errno, Error, Result};
use crate::protocol::{Fill, Image};
use crate::sys::files::file_system_of;
use crate::sys::{c_text, check, hold, hold_parent, new_descriptor, stat_of, write_all};

const TMPFS_MAGIC: u64 = 0x0102_1994;
const RAMFS_MAGIC: u64 = 0x8584_58f6;
/// Data in flight while filling: enough to keep a disk busy, little enough to leave memory alone.
const STRIDE: usize = 64 << 20;

pub fn make(request: &Image) -> Result<OwnedFd> {
    let doing = || format!("make an image in {}", request.folder);
    if request.size == 0 || request.size % 4096 != 0 || i64::try_from(request.size).is_err() {
        return Err(Error::bad(format!(
            "{}: size: wanted a multiple of 4096, found {}",
            doing(),
            request.size
        )));
    }
    // held from here on: a folder above can be swapped, the one that was looked at cannot
    let folder = hold(&request.folder, libc::O_DIRECTORY, &doing())?;
    let magic = file_system_of(&folder, &doing())?.f_type as u64 & 0xffff_ffff;
    if magic == TMPFS_MAGIC || magic == RAMFS_MAGIC {
        return Err(Error::bad(format!(
            "{}: wanted a file system on a disk, found one in memory (type {magic:#x})",
            doing()
        )));
    }
    let image = match &request.path {
        None => nameless(&folder, &request.folder)?,
        Some(path) => named_for_an_instant(path)?,
    };
    // SAFETY: no pointers are involved.
    if unsafe { libc::fallocate(image.as_raw_fd(), 0, 0, request.size as i64) } == -1 {
        let errno = last_errno();
        // Filling allocates too, if less evenly.
        if errno != libc::EOPNOTSUPP {
            return Err(Error::errno(
                format!("{}: allocate {} bytes", doing(), request.size),
                errno,
            ));
        }
        if request.fill == Fill::Allocate {
            return Err(Error::unsupported(format!(
                "{}: this file system cannot allocate without writing; ask for fill \"write\"",
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
            "{}: wanted {} bytes allocated, found size {} with {} bytes allocated",
            doing(),
            request.size,
            found.st_size,
            found.st_blocks * 512
        )));
    }
    Ok(image)
}

/// O_TMPFILE; `os` EOPNOTSUPP where the file system has none.
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

/// A file whose name is taken away at once. The name is the conductor's, who has it in the journal.
fn named_for_an_instant(path: &str) -> Result<OwnedFd> {
    let (folder, name) = hold_parent(path, &format!("make {path}"))?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let image = create_at(&folder, &name, flags)
        .map_err(|errno| Error::errno(format!("make {path}"), errno))?;
    // SAFETY: the text ends with NUL.
    check(
        unsafe { libc::unlinkat(folder.as_raw_fd(), name.as_ptr(), 0) },
        || format!("unlink {path}"),
    )?;
    Ok(image)
}

fn create_at(folder: &OwnedFd, name: &CStr, flags: c_int) -> std::result::Result<OwnedFd, i32> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the text ends with NUL; the descriptor is new and ours.
    unsafe {
        let fd = libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, 0o600 as c_uint);
        new_descriptor(fd.into())
    }
}

/// Zeros through the page cache to the disk, so that no extent stays unwritten, and out of the cache again.
fn fill(image: &OwnedFd, size: u64) -> Result<()> {
    let zeros = vec![0; 1 << 20];
    let fd = image.as_raw_fd();
    let mut done = 0;
    while done < size {
        let stride = (size - done).min(STRIDE as u64);
        let mut left = stride as usize;
        while left > 0 {
            let n = left.min(zeros.len());
            write_all(fd, &zeros[..n], "the image")?;
            left -= n;
        }
        // SAFETY: no pointers are involved.
        check(
            unsafe {
                libc::sync_file_range(fd, done as i64, stride as i64, libc::SYNC_FILE_RANGE_WRITE)
            },
            || "start writing the image".to_string(),
        )?;
        done += stride;
    }
    // SAFETY: no pointers are involved.
    unsafe {
        check(libc::fdatasync(fd), || "fdatasync the image".to_string())?;
        libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_DONTNEED);
    }
    Ok(())
}
