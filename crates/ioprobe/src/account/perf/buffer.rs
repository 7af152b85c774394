//! Memory that the kernel fills with the records of perf events, round and round, and that we empty.
//!
//! A page says how far either side is; then come the records. Where there is no room the kernel throws a record away, and
//! says how many went that way in front of the next one that fits, which may never come. So nothing that it says is relied
//! on here: a record can only have found no room if the buffer was full but for less than the longest record.

use std::os::unix::io::RawFd;
use std::sync::atomic::{fence, AtomicU64, Ordering};

use libc::{c_int, c_void};

use crate::error::{Error, Result};

pub const PAGE: usize = 4096;
/// Longer than any record that is asked for, by far.
const LONGEST_RECORD: u64 = 512;
/// In the first page: how many bytes have been written and taken out, ever (struct perf_event_mmap_page).
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

pub struct Buffer {
    base: *mut c_void,
    /// Of the records alone; a power of two of pages.
    bytes: usize,
}

impl Buffer {
    /// The buffer of a perf event that has none yet.
    pub fn of_event(event: RawFd, bytes: usize) -> Result<Self> {
        Buffer::map(bytes, libc::MAP_SHARED, event)
    }

    fn map(bytes: usize, flags: c_int, fd: RawFd) -> Result<Self> {
        // SAFETY: a new mapping, wherever the kernel likes; given back when this is dropped.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE + bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                fd,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os(format!(
                "map a buffer of {bytes} bytes for perf events"
            )));
        }
        Ok(Buffer { base, bytes })
    }

    /// Adds what is there to `to`. False where a record may have found no room since the last time.
    pub fn take_out(&mut self, to: &mut Vec<u8>) -> bool {
        let taken = self.position(DATA_TAIL).load(Ordering::Relaxed);
        let written = self.position(DATA_HEAD).load(Ordering::Acquire);
        let there = written.wrapping_sub(taken).min(self.bytes as u64);
        self.copy(taken, there as usize, to);
        self.position(DATA_TAIL).store(written, Ordering::Release);
        // The kernel went on while we copied, and until now it had no more room than before.
        fence(Ordering::SeqCst);
        let reached = self.position(DATA_HEAD).load(Ordering::Relaxed);
        reached.wrapping_sub(taken) <= self.bytes as u64 - LONGEST_RECORD
    }

    fn copy(&self, from: u64, length: usize, to: &mut Vec<u8>) {
        let start = from as usize % self.bytes;
        let first = length.min(self.bytes - start);
        // SAFETY: both parts lie in the data of the mapping, which begins after one page, and were written: the kernel lets
        // them be until we have moved the tail.
        unsafe {
            let data = self.base.cast::<u8>().add(PAGE);
            to.extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            to.extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: an aligned word in the first page of the mapping, which both sides read and write whole.
        unsafe { &*self.base.cast::<u8>().add(at).cast::<AtomicU64>() }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.base, PAGE + self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: usize = 64;

    fn buffer() -> Buffer {
        Buffer::map(PAGE, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1).unwrap()
    }

    /// The kernel's side (kernel/events/ring_buffer.c): writes where there is room, else throws away. Returns whether it did.
    fn write(base: usize, number: u64) -> bool {
        let word = |at: usize| unsafe { &*((base + at) as *const AtomicU64) };
        let written = word(DATA_HEAD).load(Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let taken = word(DATA_TAIL).load(Ordering::Acquire);
        if (written - taken) as usize + RECORD > PAGE {
            return false;
        }
        let at = PAGE + written as usize % PAGE;
        for index in 0..RECORD / 8 {
            word(at + 8 * index).store(number, Ordering::Relaxed);
        }
        word(DATA_HEAD).store(written + RECORD as u64, Ordering::Release);
        true
    }

    fn numbers(bytes: &[u8]) -> Vec<u64> {
        bytes
            .chunks(RECORD)
            .map(|record| {
                let number = &record[..8];
                assert!(record.chunks(8).all(|word| word == number), "torn");
                u64::from_le_bytes(number.try_into().unwrap())
            })
            .collect()
    }

    #[test]
    fn what_is_taken_out_is_what_was_written_round_its_end_too() {
        let mut buffer = buffer();
        let (mut taken, mut next) = (Vec::new(), 0);
        for count in [1, 50, 7, 55, 40, 56] {
            taken.clear();
            let first = next;
            for _ in 0..count {
                assert!(write(buffer.base as usize, next));
                next += 1;
            }
            assert!(buffer.take_out(&mut taken), "{count} of 64 fit");
            assert_eq!(numbers(&taken), (first..next).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_buffer_may_have_had_no_room() {
        let mut buffer = buffer();
        let mut taken = Vec::new();
        while write(buffer.base as usize, 0) {}
        assert!(!buffer.take_out(&mut taken));
        assert!(buffer.take_out(&mut taken));
        assert_eq!(taken.len(), PAGE);
    }

    #[test]
    fn what_found_no_room_is_noticed_whenever_it_came() {
        let (mut with_loss, mut without) = (0, 0);
        for round in 0..400_u64 {
            let mut buffer = buffer();
            let base = buffer.base as usize;
            let count = 20 + round % 200;
            let done = AtomicU64::new(0);
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let written = (0..count).filter(|number| write(base, *number)).count();
                    done.store(1, Ordering::Release);
                    written
                });
                let (mut taken, mut had_room) = (Vec::new(), true);
                let reads_along = round % 10 > 0;
                while !reads_along && done.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                loop {
                    let last = done.load(Ordering::Acquire) == 1;
                    had_room &= buffer.take_out(&mut taken);
                    if last {
                        break;
                    }
                    std::thread::yield_now();
                }
                let written = writer.join().unwrap();
                let found = numbers(&taken);
                assert!(found.windows(2).all(|pair| pair[0] < pair[1]));
                assert_eq!(found.len(), written);
                assert!(
                    !had_room || written as u64 == count,
                    "{count}: silently {written}"
                );
                *(if had_room {
                    &mut without
                } else {
                    &mut with_loss
                }) += 1;
            });
        }
        assert!(with_loss > 0 && without > 0, "{with_loss}, {without}");
    }
}
