//! The timed part of a copy within a file system: by read and write, like dd and cp without
//! copy_file_range, or by copy_file_range alone, for which a file system may share blocks instead
//! of copying data.

use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use super::timed::{as_long, broken, close_ticks, Broken, Closing, Done, Ended, Recorders};
use crate::clock::Clock;
use crate::error::last_errno;
use crate::jobs::region::Region;
use crate::jobs::stopwatch::Span;
use crate::protocol::{CopyWith, StreamFlush};

pub struct Copying {
    pub from: OwnedFd,
    pub to: OwnedFd,
    pub block: usize,
    pub memory: Region,
    /// The number of blocks; None: copy to the end.
    pub blocks: Option<u64>,
    pub direct: bool,
    pub with: CopyWith,
    pub flush: StreamFlush,
}

impl Copying {
    pub fn perform(
        mut self,
        clock: &Clock,
        recorders: &mut Recorders,
    ) -> Result<(Span, Done), Broken> {
        let to = self.to.as_raw_fd();
        let mut done = Done::default();
        let mut closing = Closing::new(self.flush, self.direct);
        let start = clock.ticks();
        let mut last = start;
        while self.blocks.is_none_or(|blocks| done.blocks < blocks) {
            let moved = match self.with {
                CopyWith::CopyFileRange => self.move_in_the_kernel(&done)?,
                CopyWith::ReadWrite => self.read_and_write(&mut closing, &done)?,
            };
            if moved == 0 {
                done.ended = Ended::End;
                break;
            }
            let now = clock.ticks();
            recorders.block.record(now.saturating_sub(last));
            last = now;
            done.bytes += moved as u64;
            done.blocks += 1;
            done.short_block = if moved < self.block { moved as u64 } else { 0 };
        }
        let last = closing.flush(to, clock, recorders, &mut done, last)?;
        // Like dd: the source is closed first, and both closes are in the measured time.
        drop(self.from);
        let end = close_ticks(self.to, clock, recorders, last)?;
        Ok((Span { start, end }, done))
    }

    #[inline(always)]
    fn read_and_write(&mut self, closing: &mut Closing, done: &Done) -> Result<usize, Broken> {
        let (from, to) = (self.from.as_raw_fd(), self.to.as_raw_fd());
        // SAFETY: the memory is valid for the length of a block.
        let n = unsafe { libc::read(from, self.memory.as_mut_ptr().cast(), self.block) };
        if n < 0 && self.direct && done.short_block > 0 && last_errno() == libc::EINVAL {
            return Ok(0); // after a short block the offset is unaligned for direct I/O
        }
        if n < 0 {
            return Err(broken("read", done.bytes, n));
        }
        let length = n as usize;
        if length == 0 {
            return Ok(0);
        }
        if length < self.block {
            closing.short_block(to, done.bytes)?;
        }
        // SAFETY: this many bytes were read into it.
        let n = unsafe { libc::write(to, self.memory.as_ptr().cast(), length) };
        as_long(n, length, "write", done.bytes)?;
        Ok(length)
    }

    #[inline(always)]
    fn move_in_the_kernel(&self, done: &Done) -> Result<usize, Broken> {
        match copy_file_range(self.from.as_raw_fd(), self.to.as_raw_fd(), self.block) {
            n if n < 0 => Err(broken("copy_file_range", done.bytes, n)),
            n => Ok(n as usize),
        }
    }
}

/// Copy at the current offsets of both files.
fn copy_file_range(from: RawFd, to: RawFd, length: usize) -> isize {
    let none = ptr::null_mut::<libc::loff_t>();
    // SAFETY: null means the files' own offsets.
    let n = unsafe {
        libc::syscall(
            libc::SYS_copy_file_range,
            from,
            none,
            to,
            none,
            length,
            0_u32,
        )
    };
    n as isize
}
