//! The timed part of a test: one loop over the records, with only the calls of the test itself.
//!
//! The clock is read before the first record and after the last, and in between only if latencies
//! are requested. A record's stamp is stored into the buffer before a write, and compared after a
//! read.

use libc::c_int;

use super::order::Order;
use super::pattern::{put_stamp, stamp_of, Held, Pattern};
use super::stdio::Stream;
use crate::clock::Clock;
use crate::error::last_errno;
use crate::recorder::LatencyRecorder;

/// Where and how a test failed: the record, and either the errno or the number of bytes
/// transferred.
#[derive(Debug)]
pub enum Broken {
    Os { record: u32, errno: i32 },
    Short { record: u32, bytes: i64 },
}

/// The records of one test: their number, their order and the buffer.
pub struct Records<'a> {
    pub count: u32,
    pub order: &'a Order,
    pub buffer: &'a mut [u8],
    pub recorder: Option<&'a mut LatencyRecorder>,
}

impl Records<'_> {
    /// write(2) every record. If they are not in file order, lseek(2) before each.
    #[inline(never)]
    pub fn write(
        self,
        fd: c_int,
        pattern: &Pattern,
        clock: &Clock,
        start: u64,
    ) -> Result<(), Broken> {
        let seeks = !self.order.is_rising();
        self.each(clock, start, |buffer, record| {
            put_stamp(buffer, pattern.stamp(record));
            if seeks {
                seek(fd, record, buffer.len())?;
            }
            // SAFETY: the buffer is valid for its length.
            let n = unsafe { libc::write(fd, buffer.as_ptr().cast(), buffer.len()) };
            whole(n as i64, buffer.len(), record)
        })
    }

    /// read(2) every record, with lseek(2) likewise. Returns the number of records with a wrong
    /// stamp.
    #[inline(never)]
    pub fn read(self, fd: c_int, held: &Held, clock: &Clock, start: u64) -> Result<u64, Broken> {
        let seeks = !self.order.is_rising();
        self.each_held_against(held, clock, start, |buffer, record| {
            if seeks {
                seek(fd, record, buffer.len())?;
            }
            // SAFETY: the buffer is valid for its length.
            let n = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
            whole(n as i64, buffer.len(), record)
        })
    }

    /// fwrite(3) every record.
    #[inline(never)]
    pub fn fwrite(
        self,
        stream: &Stream,
        pattern: &Pattern,
        clock: &Clock,
        start: u64,
    ) -> Result<(), Broken> {
        self.each(clock, start, |buffer, record| {
            put_stamp(buffer, pattern.stamp(record));
            match stream.write(buffer) {
                n if n == buffer.len() => Ok(()),
                _ => Err(failed(record)),
            }
        })
    }

    /// fread(3) every record. Returns the number of records with a wrong stamp.
    #[inline(never)]
    pub fn fread(
        self,
        stream: &Stream,
        held: &Held,
        clock: &Clock,
        start: u64,
    ) -> Result<u64, Broken> {
        self.each_held_against(held, clock, start, |buffer, record| {
            let n = stream.read(buffer);
            if n != buffer.len() && stream.failed() {
                return Err(failed(record));
            }
            whole(n as i64, buffer.len(), record)
        })
    }

    /// As `each`, for reads. Returns the number of records with a wrong stamp.
    #[inline(always)]
    fn each_held_against(
        self,
        held: &Held,
        clock: &Clock,
        start: u64,
        mut read: impl FnMut(&mut [u8], u32) -> Result<(), Broken>,
    ) -> Result<u64, Broken> {
        let mut wrong = 0;
        self.each(clock, start, |buffer, record| {
            read(buffer, record)?;
            wrong += u64::from(stamp_of(buffer) != held.stamp(record));
            Ok(())
        })?;
        Ok(wrong)
    }

    /// Call `one` with the buffer for each record in order. If latencies are requested, read the
    /// clock after each.
    #[inline(always)]
    fn each(
        self,
        clock: &Clock,
        start: u64,
        mut one: impl FnMut(&mut [u8], u32) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let Records {
            count,
            order,
            buffer,
            recorder,
        } = self;
        match recorder {
            None => {
                for step in 0..count {
                    one(buffer, order.record(step, count))?;
                }
            }
            Some(recorder) => {
                let mut last = start;
                for step in 0..count {
                    one(buffer, order.record(step, count))?;
                    let now = clock.ticks();
                    recorder.record(now.saturating_sub(last));
                    last = now;
                }
            }
        }
        Ok(())
    }
}

#[inline(always)]
fn seek(fd: c_int, record: u32, size: usize) -> Result<(), Broken> {
    let offset = i64::from(record) * size as i64;
    // SAFETY: no pointers are involved.
    match unsafe { libc::lseek(fd, offset, libc::SEEK_SET) } {
        -1 => Err(failed(record)),
        _ => Ok(()),
    }
}

#[inline(always)]
fn whole(n: i64, size: usize, record: u32) -> Result<(), Broken> {
    match n {
        n if n == size as i64 => Ok(()),
        -1 => Err(failed(record)),
        bytes => Err(Broken::Short { record, bytes }),
    }
}

#[cold]
fn failed(record: u32) -> Broken {
    Broken::Os {
        record,
        errno: last_errno(),
    }
}
