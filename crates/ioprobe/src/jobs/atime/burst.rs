//! One file read over and over: how often its access time changes, beside how often the clock that it comes from ticks.

use std::os::unix::io::AsRawFd;

use serde::Serialize;

use super::object::Object;
use crate::clock::read_ns;
use crate::error::{Error, Result};
use crate::sys::check;

/// What came of it. Ticks are counted by how far the clock has gone: between two looks at it there may have been several.
#[derive(Serialize)]
pub struct Burst {
    reads: u32,
    changes: u32,
    ticks: u32,
    tick_ns: u64,
}

/// So many reads of an object's first bytes, with the access time looked at after each.
pub fn read(object: &Object, reads: u32, tick_ns: u64) -> Result<Burst> {
    let file = crate::sys::open(&object.path, libc::O_RDONLY, 0)?;
    let mut room = [0_u8; 64];
    let tick_ns = tick_ns.max(1);
    let mut last = object.atime()?;
    let mut at = coarse();
    let mut found = Burst {
        reads,
        changes: 0,
        // The one that stands when it begins.
        ticks: 1,
        tick_ns,
    };
    for _ in 0..reads {
        // SAFETY: the buffer is ours.
        let n = unsafe { libc::pread(file.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), 0) };
        if n != room.len() as isize {
            return Err(Error::last_os(format!("read {}", object.path)));
        }
        let (atime, now) = (object.atime()?, coarse());
        found.changes += u32::from(atime != last);
        if now > at {
            let gone = (now - at + tick_ns / 2) / tick_ns;
            found.ticks = found
                .ticks
                .saturating_add(gone.clamp(1, u64::from(u32::MAX)) as u32);
        }
        last = atime;
        at = now;
    }
    Ok(found)
}

/// How long the clock of time stamps stands still.
pub fn tick_ns() -> Result<u64> {
    let mut resolution = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    check(
        // SAFETY: the structure is ours.
        unsafe { libc::clock_getres(libc::CLOCK_REALTIME_COARSE, &mut resolution) },
        || "read the resolution of the coarse clock".to_string(),
    )?;
    Ok(resolution.tv_sec as u64 * 1_000_000_000 + resolution.tv_nsec as u64)
}

/// The clock that the kernel takes time stamps from.
fn coarse() -> u64 {
    read_ns(libc::CLOCK_REALTIME_COARSE)
}
