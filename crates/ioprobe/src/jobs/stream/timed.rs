//! The timed part of a stream: the system calls of the original program, in the same order, and one
//! clock reading per block.
//!
//! As with dd, opening (and truncating, which frees the old blocks) comes before, and the flush and
//! close are included. As with hdparm, a read with a time limit ends with the block that exceeds
//! it, and the device is closed afterwards.

use std::os::unix::io::{AsRawFd, IntoRawFd, OwnedFd, RawFd};

use libc::c_int;

use super::data::Prepared;
use serde::Serialize;

use crate::clock::Clock;
use crate::error::last_errno;
use crate::jobs::region::Region;
use crate::jobs::stopwatch::Span;
use crate::protocol::StreamFlush;
use crate::recorder::LatencyRecorder;

const SECTOR: usize = 512;

/// What the original program does with each block besides reading or writing it.
pub enum BlockExtra {
    Nothing,
    /// dd: read the block from /dev/zero before writing it, or write it to /dev/null after reading
    /// it.
    Copy(OwnedFd),
    /// hdparm: touch every sector of the block.
    Touch,
}

pub struct Recorders {
    pub block: LatencyRecorder,
    pub flush_ticks: Option<u64>,
    pub close_ticks: Option<u64>,
}

impl Recorders {
    pub fn new() -> Self {
        Recorders {
            block: LatencyRecorder::new(),
            flush_ticks: None,
            close_ticks: None,
        }
    }
}

/// What was done, to be checked against what was expected.
#[derive(Debug, Default)]
pub struct Done {
    pub bytes: u64,
    pub blocks: u64,
    /// Length in bytes of the last block, if it was shorter than the others.
    pub short_block: u64,
    pub ended: Ended,
    pub flushed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    #[default]
    Volume,
    End,
    Time,
}

/// The system call that failed; errno is 0 if it transferred less than requested.
#[derive(Debug)]
pub struct Broken {
    pub call: &'static str,
    pub offset: u64,
    pub errno: i32,
    pub moved: i64,
}

pub struct Reading {
    pub from: OwnedFd,
    /// The offset of each block; None: sequential, at the file's own offset.
    pub places: Option<Vec<u64>>,
    pub block: usize,
    pub memory: Region,
    /// The number of blocks; None: read to the end.
    pub blocks: Option<u64>,
    pub limit_ticks: Option<u64>,
    pub direct: bool,
    pub close_inside: bool,
    pub extra: BlockExtra,
}

pub struct Writing {
    pub to: OwnedFd,
    pub block: usize,
    pub prepared: Prepared,
    /// The start, which is the descriptor's offset, and the end.
    pub from: u64,
    pub end: u64,
    pub direct: bool,
    pub flush: StreamFlush,
    pub extra: BlockExtra,
}

impl Reading {
    pub fn perform(
        mut self,
        clock: &Clock,
        recorders: &mut Recorders,
    ) -> Result<(Span, Done, Option<OwnedFd>), Broken> {
        let (from, block) = (self.from.as_raw_fd(), self.block);
        let mut done = Done::default();
        let mut before = block;
        let start = clock.ticks();
        let mut last = start;
        while self.blocks.is_none_or(|blocks| done.blocks < blocks) {
            let into = self.memory.as_mut_ptr().cast();
            // SAFETY: the memory is valid for the length of a block.
            let n = unsafe {
                match &self.places {
                    None => libc::read(from, into, block),
                    Some(places) => {
                        let place = places[done.blocks as usize % places.len()];
                        libc::pread(from, into, block, place as i64)
                    }
                }
            };
            if n < 0 && self.direct && before < block && last_errno() == libc::EINVAL {
                // After a short block the offset is unaligned for direct I/O. dd takes this for the
                // end, too.
                done.ended = Ended::End;
                break;
            }
            if n < 0 {
                return Err(broken("read", done.bytes, n));
            }
            if n == 0 {
                done.ended = Ended::End;
                break;
            }
            before = n as usize;
            self.do_extra(before, done.bytes)?;
            let now = clock.ticks();
            recorders.block.record(now.saturating_sub(last));
            last = now;
            done.bytes += n as u64;
            done.blocks += 1;
            if before < block {
                done.short_block = n as u64;
            }
            if self
                .limit_ticks
                .is_some_and(|limit| now.saturating_sub(start) >= limit)
            {
                done.ended = Ended::Time;
                break;
            }
        }
        if !self.close_inside {
            let end = if done.ended == Ended::End {
                clock.ticks()
            } else {
                last
            };
            return Ok((Span { start, end }, done, Some(self.from)));
        }
        let end = close_ticks(self.from, clock, recorders, last)?;
        Ok((Span { start, end }, done, None))
    }

    #[inline(always)]
    fn do_extra(&mut self, length: usize, offset: u64) -> Result<(), Broken> {
        match &self.extra {
            BlockExtra::Nothing => Ok(()),
            BlockExtra::Copy(null) => {
                // SAFETY: this many bytes were read into it.
                let n =
                    unsafe { libc::write(null.as_raw_fd(), self.memory.as_ptr().cast(), length) };
                as_long(n, length, "write to /dev/null", offset)
            }
            BlockExtra::Touch => {
                for at in (0..length).step_by(SECTOR) {
                    // SAFETY: the offset is inside the block. Volatile, because nothing else uses
                    // the data read.
                    unsafe {
                        let byte = self.memory.as_mut_ptr().add(at);
                        byte.write_volatile(byte.read_volatile() & 1);
                    }
                }
                Ok(())
            }
        }
    }
}

impl Writing {
    pub fn perform(
        mut self,
        clock: &Clock,
        recorders: &mut Recorders,
    ) -> Result<(Span, Done), Broken> {
        let to = self.to.as_raw_fd();
        let mut done = Done::default();
        let mut closing = Closing::new(self.flush, self.direct);
        let mut offset = self.from;
        let start = clock.ticks();
        let mut last = start;
        while offset < self.end {
            let length = (self.block as u64).min(self.end - offset) as usize;
            let block = self.prepared.block(offset, length);
            if let BlockExtra::Copy(zeros) = &self.extra {
                // SAFETY: the block is valid for its length.
                let n = unsafe { libc::read(zeros.as_raw_fd(), block.as_mut_ptr().cast(), length) };
                as_long(n, length, "read from /dev/zero", offset)?;
            }
            if length < self.block {
                done.short_block = length as u64;
                closing.short_block(to, offset)?;
            }
            // SAFETY: the block is valid for its length.
            let n = unsafe { libc::write(to, block.as_ptr().cast(), length) };
            as_long(n, length, "write", offset)?;
            let now = clock.ticks();
            recorders.block.record(now.saturating_sub(last));
            last = now;
            offset += length as u64;
            done.blocks += 1;
        }
        done.bytes = offset - self.from;
        let last = closing.flush(to, clock, recorders, &mut done, last)?;
        let end = close_ticks(self.to, clock, recorders, last)?;
        Ok((Span { start, end }, done))
    }
}

/// What dd does about a partial last block, and after the last block.
pub struct Closing {
    flush: StreamFlush,
    direct: bool,
    /// The offset of a block that was written through the cache although all others bypassed it.
    cached_from: Option<u64>,
}

impl Closing {
    pub fn new(flush: StreamFlush, direct: bool) -> Self {
        Closing {
            flush,
            direct,
            cached_from: None,
        }
    }

    /// Call this before writing a block that is shorter than the others.
    #[cold]
    pub fn short_block(&mut self, to: RawFd, offset: u64) -> Result<(), Broken> {
        if self.direct {
            turn_buffered(to, offset)?;
            self.cached_from = Some(offset);
        }
        Ok(())
    }

    /// Flush as requested. Returns the last clock reading.
    pub fn flush(
        &self,
        to: RawFd,
        clock: &Clock,
        recorders: &mut Recorders,
        done: &mut Done,
        last: u64,
    ) -> Result<u64, Broken> {
        // dd flushes by itself if it has written the last block through the cache.
        let flush = match self.flush {
            StreamFlush::None if self.cached_from.is_some() => StreamFlush::Fsync,
            flush => flush,
        };
        if flush == StreamFlush::None {
            return Ok(last);
        }
        // SAFETY: no pointers are involved.
        let (n, call) = unsafe {
            match flush {
                StreamFlush::Fdatasync => (libc::fdatasync(to), "fdatasync"),
                _ => (libc::fsync(to), "fsync"),
            }
        };
        if n != 0 {
            return Err(broken(call, done.bytes, n as isize));
        }
        done.flushed = true;
        if let Some(offset) = self.cached_from {
            forget(to, offset);
        }
        let now = clock.ticks();
        recorders.flush_ticks = Some(now.saturating_sub(last));
        Ok(now)
    }
}

/// Switch off direct I/O and drop the cache from `offset` on, as dd does for a partial last block.
#[cold]
fn turn_buffered(to: RawFd, offset: u64) -> Result<(), Broken> {
    // SAFETY: no pointers are involved.
    let n = unsafe {
        let flags = libc::fcntl(to, libc::F_GETFL);
        libc::fcntl(to, libc::F_SETFL, flags & !libc::O_DIRECT)
    };
    if n != 0 {
        return Err(broken("fcntl", offset, n as isize));
    }
    forget(to, offset);
    Ok(())
}

fn forget(to: RawFd, offset: u64) {
    // SAFETY: no pointers are involved.
    unsafe { libc::posix_fadvise(to, offset as i64, 0, libc::POSIX_FADV_DONTNEED) };
}

/// Close the file. Returns the clock reading after that.
pub fn close_ticks(
    file: OwnedFd,
    clock: &Clock,
    recorders: &mut Recorders,
    last: u64,
) -> Result<u64, Broken> {
    // SAFETY: we owned the descriptor, and nothing else uses it any more.
    let n: c_int = unsafe { libc::close(file.into_raw_fd()) };
    if n != 0 {
        return Err(broken("close", 0, n as isize));
    }
    let now = clock.ticks();
    recorders.close_ticks = Some(now.saturating_sub(last));
    Ok(now)
}

#[inline(always)]
pub fn as_long(n: isize, length: usize, call: &'static str, offset: u64) -> Result<(), Broken> {
    if n == length as isize {
        Ok(())
    } else {
        Err(broken(call, offset, n))
    }
}

#[cold]
pub fn broken(call: &'static str, offset: u64, moved: isize) -> Broken {
    Broken {
        call,
        offset,
        errno: if moved < 0 { last_errno() } else { 0 },
        moved: moved as i64,
    }
}
