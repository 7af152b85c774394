//! Memory of a job: page-aligned, and with all pages faulted in before the clock starts.
//!
//! It is mapped for the job and given back with it. The allocator would keep some of what was freed,
//! and under a memory limit the page cache would have that much less.

use std::ops::{Deref, DerefMut};
use std::os::unix::io::RawFd;
use std::ptr;

use libc::c_int;

use crate::error::{Error, Result};

/// A memory mapping. Anonymous ones serve as buffers, because O_DIRECT needs aligned memory and
/// io_uring's registered buffers are pinned pages. Others map a file.
pub struct Region {
    start: *mut u8,
    length: usize,
}

impl Region {
    /// Get memory of zeros; one byte if the length is 0, which cannot be mapped.
    pub fn zeroed(length: usize) -> Result<Self> {
        let length = length.max(1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let doing = || format!("get {length} bytes of memory");
        Region::mapped(length, libc::PROT_WRITE, flags, -1, doing)
    }

    /// Get memory that holds no data of a work, so that what was never read into it is seen.
    pub fn filled(length: usize) -> Result<Self> {
        let mut region = Region::zeroed(length)?;
        region.fill(0xa5);
        Ok(region)
    }

    /// Map the beginning of a file for reading and, if `writable`, writing. No page is touched.
    pub fn of_file(file: RawFd, length: usize, writable: bool, path: &str) -> Result<Self> {
        let more = if writable { libc::PROT_WRITE } else { 0 };
        Region::mapped(length, more, libc::MAP_SHARED, file, || {
            format!("map {path}")
        })
    }

    fn mapped(
        length: usize,
        more_access: c_int,
        flags: c_int,
        file: RawFd,
        doing: impl FnOnce() -> String,
    ) -> Result<Self> {
        let access = libc::PROT_READ | more_access;
        // SAFETY: a new mapping, which nothing else refers to.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, access, flags, file, 0) };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os(doing()));
        }
        Ok(Region {
            start: start.cast(),
            length,
        })
    }

    #[inline(always)]
    pub fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.length);
        // SAFETY: within the mapping.
        unsafe { self.start.add(offset) }
    }

    /// Leak the memory for good: the kernel may still write to it.
    pub fn leak(&mut self) {
        self.length = 0;
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: we own the mapping, and it has this length.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }
}

// SAFETY: it is the only owner of the mapping, like a Vec.
unsafe impl Send for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: we own it, and nothing points into it any more.
            unsafe { libc::munmap(self.start.cast(), self.length) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_nothing_can_be_had_too() {
        assert_eq!(Region::zeroed(0).unwrap()[..], [0]);
    }
}
