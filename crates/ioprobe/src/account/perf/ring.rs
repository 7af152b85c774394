//! A perf event, and the buffer that it and others write their records to.
//!
//! The layout of attributes is that of include/uapi/linux/perf_event.h and perf_event_open(2).

use std::os::unix::io::{AsRawFd, OwnedFd};

use libc::c_int;

use super::buffer::Buffer;
use crate::error::{Error, Result};
use crate::syscall::new_descriptor;

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
    /// A tracepoint in this process and all that it starts, while they are on one processor; not enabled yet. Who polls it is
    /// woken when there are so many bytes to read.
    pub fn open(
        tracepoint: u64,
        processor: c_int,
        with_tasks: bool,
        wake_bytes: usize,
    ) -> Result<Self> {
        let attributes = Attributes {
            kind: TRACEPOINT,
            size: std::mem::size_of::<Attributes>() as u32,
            config: tracepoint,
            period: 1,
            sample: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW | SAMPLE_REGISTERS,
            flags: DISABLED | INHERIT | WATERMARK | USE_CLOCK | if with_tasks { TASK } else { 0 },
            wakeup: wake_bytes as u32,
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
    buffer: Buffer,
}

impl Ring {
    pub fn over(event: Event, bytes: usize) -> Result<Self> {
        let buffer = Buffer::of_event(event.0.as_raw_fd(), bytes)?;
        Ok(Ring { event, buffer })
    }

    pub fn descriptor(&self) -> c_int {
        self.event.0.as_raw_fd()
    }

    /// See `Buffer::take_out`.
    pub fn take_out(&mut self, to: &mut Vec<u8>) -> bool {
        self.buffer.take_out(to)
    }
}
