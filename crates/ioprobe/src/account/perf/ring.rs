//! A perf event and its buffer: what the kernel writes there is taken out while the command runs.
//!
//! The layout of attributes, buffer and records is that of include/uapi/linux/perf_event.h and perf_event_open(2).

use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::atomic::{fence, Ordering};

use libc::{c_int, c_void};

use crate::error::{Error, Result};
use crate::syscall::new_descriptor;

/// A power of two of pages, beside the page that describes them: 8 MiB for each processor.
const DATA_BYTES: usize = 8 << 20;
const PAGE: usize = 4096;
const LONGEST_RECORD: u64 = 512;
const DATA_HEAD: usize = 1024;
const DATA_TAIL: usize = 1032;

const TRACEPOINT: u32 = 2;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;
const SAMPLE_REGISTERS: u64 = 1 << 12;
const DISABLED: u64 = 1;
const INHERIT: u64 = 1 << 1;
/// Records of forks and exits too.
const TASK: u64 = 1 << 13;
const WATERMARK: u64 = 1 << 14;
const USE_CLOCK: u64 = 1 << 25;
const ENABLE: u64 = 0x2400;
const DISABLE: u64 = 0x2401;
const SET_OUTPUT: u64 = 0x2405;

#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    read: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    more: [u64; 3],
    registers: u64,
    stack: u32,
    clock: i32,
    registers_at_interrupt: u64,
    auxiliary: u32,
    rest: u32,
}

pub struct Event(OwnedFd);

impl Event {
    /// A tracepoint in this process and all that it starts, while they are on one processor; not enabled yet.
    pub fn open(tracepoint: u64, processor: c_int, with_tasks: bool) -> Result<Self> {
        let attributes = Attributes {
            kind: TRACEPOINT,
            size: std::mem::size_of::<Attributes>() as u32,
            config: tracepoint,
            period: 1,
            sample: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW | SAMPLE_REGISTERS,
            flags: DISABLED | INHERIT | WATERMARK | USE_CLOCK | if with_tasks { TASK } else { 0 },
            wakeup: (DATA_BYTES / 4) as u32,
            registers: 1, // whatever one: what is wanted is whether they are of 32 bits
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        const CLOSE_ON_EXEC: u64 = 8;
        // SAFETY: the structure is ours; the descriptor is new.
        unsafe {
            new_descriptor(libc::syscall(
                libc::SYS_perf_event_open,
                &attributes,
                0,
                processor,
                -1,
                CLOSE_ON_EXEC,
            ))
        }
        .map(Event)
        .map_err(|errno| Error::errno("open a perf event", errno))
    }

    /// Lets its records go to the buffer of another event of the same processor.
    pub fn write_to(&self, ring: &Ring) -> Result<()> {
        self.control(SET_OUTPUT, ring.event.0.as_raw_fd() as u64)
    }

    pub fn enable(&self) -> Result<()> {
        self.control(ENABLE, 0)
    }

    pub fn disable(&self) -> Result<()> {
        self.control(DISABLE, 0)
    }

    fn control(&self, what: u64, value: u64) -> Result<()> {
        // SAFETY: no pointers are involved.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), what as _, value) } {
            -1 => Err(Error::last_os("set up a perf event")),
            _ => Ok(()),
        }
    }
}

pub struct Ring {
    pub event: Event,
    base: *mut c_void,
}

impl Ring {
    pub fn over(event: Event) -> Result<Self> {
        // SAFETY: a new mapping, wherever the kernel likes; given back when this is dropped.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGE + DATA_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.0.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::last_os("map the buffer of a perf event"));
        }
        Ok(Ring { event, base })
    }

    pub fn descriptor(&self) -> c_int {
        self.event.0.as_raw_fd()
    }

    /// Hands over every record that is there; whether there was room for more all the time.
    pub fn drain(&mut self, mut take: impl FnMut(&[u8])) -> bool {
        // SAFETY: both words lie in the first page of the mapping, and only we write the tail.
        let (head, tail) = unsafe {
            let head = self
                .base
                .cast::<u8>()
                .add(DATA_HEAD)
                .cast::<u64>()
                .read_volatile();
            fence(Ordering::Acquire);
            (head, self.base.cast::<u8>().add(DATA_TAIL).cast::<u64>())
        };
        // SAFETY: as above.
        let mut at = unsafe { tail.read_volatile() };
        let had_room = head - at + LONGEST_RECORD <= DATA_BYTES as u64;
        let mut record = Vec::new();
        while at < head {
            record.clear();
            self.copy(at, 8, &mut record);
            let size = u16::from_le_bytes([record[6], record[7]]);
            if size < 8 {
                break;
            }
            self.copy(at + 8, usize::from(size) - 8, &mut record);
            take(&record);
            at += u64::from(size);
        }
        fence(Ordering::SeqCst);
        // SAFETY: as above; from here on the kernel may write over what was read.
        unsafe { tail.write_volatile(head) };
        had_room
    }

    fn copy(&self, from: u64, length: usize, to: &mut Vec<u8>) {
        let start = from as usize % DATA_BYTES;
        let first = length.min(DATA_BYTES - start);
        // SAFETY: both parts lie in the data of the mapping, which begins after one page.
        unsafe {
            let data = self.base.cast::<u8>().add(PAGE);
            to.extend_from_slice(std::slice::from_raw_parts(data.add(start), first));
            to.extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing refers to it any more.
        unsafe { libc::munmap(self.base, PAGE + DATA_BYTES) };
    }
}

/// One record, as far as it matters here. Tasks are numbered as in our own PID namespace.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Sample {
        process: u32,
        task: u32,
        at_ns: u64,
        raw: &'a [u8],
        compat: bool,
    },
    Fork {
        process: u32,
        task: u32,
        parent: u32,
        at_ns: u64,
    },
    Exit {
        process: u32,
        task: u32,
        at_ns: u64,
    },
    Lost(u64),
    Other,
}

/// The record in these bytes; None where they are cut off.
pub fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    const ABI_32: u64 = 1;
    Some(match word(0)? {
        9 => {
            let length = word(24)? as usize;
            let raw = bytes.get(28..28_usize.checked_add(length)?)?;
            Record::Sample {
                process: word(8)?,
                task: word(12)?,
                at_ns: long(16)?,
                raw,
                compat: long(28 + length)? == ABI_32,
            }
        }
        7 => Record::Fork {
            process: word(8)?,
            task: word(16)?,
            parent: word(20)?,
            at_ns: long(24)?,
        },
        4 => Record::Exit {
            process: word(8)?,
            task: word(16)?,
            at_ns: long(24)?,
        },
        2 => Record::Lost(long(16)?),
        _ => Record::Other,
    })
}
