//! Memory of the job: page-aligned, with all pages faulted in before the clock starts.

use std::os::unix::io::RawFd;
use std::ptr;

use libc::c_int;

use crate::content::{Content, Kind};
use crate::error::{Error, Result};

/// Limit, in bytes, on the data to write that is kept in memory.
const MOST_HELD: u64 = 1 << 30;
const PIECE: usize = 1 << 20;

/// A memory mapping. Anonymous ones serve as buffers, because O_DIRECT needs aligned memory and
/// io_uring's registered buffers are pinned pages. Others map a file.
pub struct Region {
    start: *mut u8,
    length: usize,
}

impl Region {
    pub fn new(length: usize) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        let doing = || format!("get {length} bytes of memory");
        let mut region = Region::mapped(length, libc::PROT_WRITE, flags, -1, doing)?;
        region.bytes().fill(0xa5);
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

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: we own the mapping, and it has this length.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.length) }
    }

    #[inline(always)]
    pub fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < self.length);
        // SAFETY: within the mapping.
        unsafe { self.start.add(offset) }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// Leak the memory for good: the kernel may still write to it.
    pub fn leak(&mut self) {
        self.length = 0;
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: we own it, and nothing points into it any more.
            unsafe { libc::munmap(self.start.cast(), self.length) };
        }
    }
}

/// The data to write: what the files already hold at those offsets. Generated before the clock
/// starts, because generating a block takes as long as writing it.
pub struct Image {
    region: Region,
    /// The start of each file's data; None if one block of zeros serves all.
    starts: Option<Vec<usize>>,
}

impl Image {
    /// Generate the data. `files` holds indices, each with the length that may be written.
    pub fn of(content: &Content, files: &[(u32, u64)], block: u64) -> Result<Self> {
        if content.kind == Kind::Zeros {
            let mut region = Region::new(block as usize)?;
            region.bytes().fill(0);
            return Ok(Image {
                region,
                starts: None,
            });
        }
        let total: u64 = files.iter().map(|(_, length)| length).sum();
        if total > MOST_HELD {
            return Err(Error::unsupported(format!(
                "keep the written data for verification: expected at most {MOST_HELD} bytes of files, found {total} (files of zeros have no limit)"
            )));
        }
        let mut region = Region::new(total as usize)?;
        let mut starts = Vec::with_capacity(files.len());
        let mut rest = region.bytes();
        let mut start = 0;
        for (index, length) in files {
            let (this, others) = rest.split_at_mut(*length as usize);
            for (n, piece) in this.chunks_mut(PIECE).enumerate() {
                content.fill(*index, (n * PIECE) as u64, piece);
            }
            starts.push(start);
            start += *length as usize;
            rest = others;
        }
        Ok(Image {
            region,
            starts: Some(starts),
        })
    }

    #[inline(always)]
    pub fn at(&self, file: u32, offset: u64) -> *const u8 {
        match &self.starts {
            None => self.region.at(0),
            Some(starts) => self.region.at(starts[file as usize] + offset as usize),
        }
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub fn leak(&mut self) {
        self.region.leak();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_holds_what_the_files_hold() {
        for kind in [Kind::Text, Kind::Random, Kind::Zeros] {
            let content = Content { kind, seed: 3 };
            let image = Image::of(&content, &[(7, 3 << 20), (2, 8192)], 4096).unwrap();
            for (file, index, offset) in [(0, 7, 0), (0, 7, 2 << 20), (1, 2, 4096)] {
                let mut wanted = vec![1; 4096];
                content.fill(index, offset, &mut wanted);
                // SAFETY: the image holds a block there.
                let found = unsafe { std::slice::from_raw_parts(image.at(file, offset), 4096) };
                assert_eq!(found, wanted);
            }
        }
    }

    #[test]
    fn more_than_can_be_held_is_refused() {
        let content = Content {
            kind: Kind::Text,
            seed: 3,
        };
        assert!(Image::of(&content, &[(0, MOST_HELD), (1, 4096)], 4096).is_err());
    }
}
