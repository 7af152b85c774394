//! The kernel's counters around a timed part, of this process and of the whole machine, in addition
//! to those of the devices.
//!
//! All files are opened once, when the probe starts, and read by pread into a buffer on the stack:
//! nothing is opened or allocated near the timed part. Values that a kernel lacks are left out,
//! never set to 0. The counters of this process are read last before the work and first after it,
//! so that reading the others is not included in them.

pub mod debugfs;
pub mod devices;
mod energy;
mod process;
pub mod processors;
mod system;

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use serde_json::{json, Value};

use self::debugfs::Tree;
pub use self::energy::POWERCAP;
use self::energy::{Meters, Microjoules};
use self::process::{Own, OwnCounts};
use self::processors::{Processors, Ticks};
use self::system::{Pressure, Stalls, System, SystemCounts};
use crate::clock::monotonic_ns;

/// The open files of one probe.
pub struct Sources {
    powercap: String,
    own: Own,
    system: System,
    pressure: Pressure,
    processors: Processors,
    meters: Meters,
    debug: Tree,
}

/// All counters at one moment.
#[derive(Clone, Copy)]
pub struct Moment {
    at_ns: u64,
    own: Option<OwnCounts>,
    system: Option<SystemCounts>,
    stalls: Stalls,
    processors: Option<Ticks>,
    energy: Microjoules,
}

thread_local! {
    /// Per process, like the descriptors themselves: every job reads the same ones.
    static SOURCES: RefCell<Option<Sources>> = const { RefCell::new(None) };
}

/// Open everything, with the energy meters in this folder (`POWERCAP` except in tests). Call this
/// once, where /proc shows this process.
pub fn open(powercap: &str) {
    let sources = Sources {
        powercap: powercap.to_string(),
        own: Own::open(),
        system: System::open(),
        pressure: Pressure::open(),
        processors: Processors::open(),
        meters: Meters::open(powercap),
        debug: Tree::open(),
    };
    SOURCES.with(|slot| *slot.borrow_mut() = Some(sources));
}

/// Switch the counters of this probe off or on, so that their cost can be measured.
pub fn switch(on: bool) {
    let powercap = with_sources(|sources| sources.powercap.clone());
    if on {
        return open(&powercap);
    }
    let nothing = Sources {
        powercap,
        own: Own::none(),
        system: System::none(),
        pressure: Pressure::none(),
        processors: Processors::none(),
        meters: Meters::none(),
        debug: Tree::none(),
    };
    SOURCES.with(|slot| *slot.borrow_mut() = Some(nothing));
}

/// Read the counters just before the work.
pub fn before() -> Moment {
    with_sources(|sources| {
        let system = sources.system.read();
        let stalls = sources.pressure.read();
        let processors = sources.processors.read();
        let energy = sources.meters.read();
        Moment {
            system,
            stalls,
            processors,
            energy,
            own: sources.own.read(),
            at_ns: monotonic_ns(),
        }
    })
}

/// Read the counters just after the work, in the opposite order.
pub fn after() -> Moment {
    with_sources(|sources| {
        let at_ns = monotonic_ns();
        let own = sources.own.read();
        let energy = sources.meters.read();
        let processors = sources.processors.read();
        let stalls = sources.pressure.read();
        Moment {
            at_ns,
            own,
            energy,
            processors,
            stalls,
            system: sources.system.read(),
        }
    })
}

/// Return the answer's `around`: the changes in between; null for what this kernel does not count.
pub fn between(before: &Moment, after: &Moment) -> Value {
    with_sources(|sources| {
        json!({
            "lasted_ns": after.at_ns - before.at_ns,
            "process": process::between(&before.own, &after.own),
            "system": sources.system.between(&before.system, &after.system),
            "pressure": sources.pressure.between(&before.stalls, &after.stalls),
            "processors": sources.processors.between(&before.processors, &after.processors),
            "energy": sources.meters.between(&before.energy, &after.energy),
        })
    })
}

/// Open the write-back statistics of a device, if available.
pub fn write_back_of(device: &str) -> Option<File> {
    with_sources(|sources| sources.debug.of_device(device))
}

fn with_sources<T>(act: impl FnOnce(&Sources) -> T) -> T {
    SOURCES.with(|slot| {
        if slot.borrow().is_none() {
            open(POWERCAP);
        }
        act(slot.borrow().as_ref().expect("opened just now"))
    })
}

/// Read the beginning of a small kernel file; None if that fails.
fn pread<'a>(file: &Option<File>, room: &'a mut [u8]) -> Option<&'a [u8]> {
    let n = file.as_ref()?.read_at(room, 0).ok()?;
    Some(&room[..n])
}

/// Parse a whole number and nothing else, without allocation.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0_u64, |sum, digit| match digit {
        b'0'..=b'9' => sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

/// Split such a file into lines.
pub fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_number_of_64_bits_is_one() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(number(b"0"), Some(0));
        for text in [&b""[..], b"18446744073709551616", b"-1", b"1 ", b"x"] {
            assert_eq!(number(text), None);
        }
    }
}
