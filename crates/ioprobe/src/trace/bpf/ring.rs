//! A BPF ring buffer: programs append events to it, and we read them through mapped memory.
//!
//! Layout (Linux kernel/bpf/ringbuf.c): a page with the consumer's position, a page with the
//! producers' position, and the data, mapped twice in a row so that no event is split. Positions
//! only grow. An event has a header of eight bytes: its length, a bit that says that it is still
//! being written, and one that says that it was given up.

use std::os::unix::io::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::{c_int, c_void};

use super::kernel::{Map, MapKind, MapShape};
use crate::error::{Error, Result};

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER: usize = 8;
const PAGE: usize = 4096;

pub struct Ring {
    map: Map,
    size: usize,
    consumer: Mapping,
    producer: Mapping,
}

impl Ring {
    /// Create a ring buffer. `size`: bytes of data, a power of two of at least a page.
    pub fn make(size: usize) -> Result<Self> {
        if !size.is_power_of_two() || !(PAGE..=1 << 30).contains(&size) {
            return Err(Error::bad(format!(
                "ring buffer of {size} bytes: expected a power of two from {PAGE} to {}",
                1 << 30
            )));
        }
        let shape = MapShape {
            kind: MapKind::Ring,
            key: 0,
            value: 0,
            entries: size as u32,
        };
        let map = Map::make(&shape, None, 1)?;
        let consumer = Mapping::new(&map, PAGE, libc::PROT_READ | libc::PROT_WRITE, 0)?;
        let producer = Mapping::new(&map, PAGE + 2 * size, libc::PROT_READ, PAGE)?;
        Ok(Ring {
            map,
            size,
            consumer,
            producer,
        })
    }

    pub fn descriptor(&self) -> i32 {
        self.map.fd.as_raw_fd()
    }

    pub fn size(&self) -> usize {
        self.size
    }

    /// Pass on each event that is complete, in order, and make room for new ones. Returns the
    /// number of bytes that they took.
    pub fn drain(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<usize> {
        // SAFETY: both pages are mapped for as long as this lives and begin with a position.
        let (consumed, produced) = unsafe {
            (
                &*self.consumer.start.cast::<AtomicU64>(),
                &*self.producer.start.cast::<AtomicU64>(),
            )
        };
        let first = consumed.load(Ordering::Relaxed);
        let (mut at, mut freed) = (first, first);
        let end = produced.load(Ordering::Acquire);
        while at < end {
            let place = PAGE + at as usize % self.size;
            // SAFETY: the place is inside the first of the two mappings of the data.
            let header = unsafe { &*self.producer.start.add(place).cast::<AtomicU32>() };
            let header = header.load(Ordering::Acquire);
            if header & BUSY != 0 {
                break;
            }
            let length = (header & !DISCARDED) as usize;
            if length > self.size {
                return Err(Error::verify("read a BPF ring buffer: its header is wrong"));
            }
            if header & DISCARDED == 0 {
                // SAFETY: an event is shorter than the data, which is mapped twice in a row; the
                // kernel does not write to it before we move the consumer's position.
                let event = unsafe {
                    std::slice::from_raw_parts(self.producer.start.add(place + HEADER), length)
                };
                each(event)?;
            }
            at += ((HEADER + length + 7) & !7) as u64;
            if (at - freed) as usize > self.size / 16 {
                consumed.store(at, Ordering::Release);
                freed = at;
            }
        }
        consumed.store(at, Ordering::Release);
        Ok((at - first) as usize)
    }
}

struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    fn new(map: &Map, length: usize, protection: c_int, offset: usize) -> Result<Self> {
        // SAFETY: the kernel chooses the address.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                map.fd.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        match start == libc::MAP_FAILED {
            true => Err(Error::last_os("map a BPF ring buffer")),
            false => Ok(Mapping {
                start: start.cast(),
                length,
            }),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: we own the mapping, and nothing uses it afterwards.
        unsafe { libc::munmap(self.start.cast::<c_void>(), self.length) };
    }
}
