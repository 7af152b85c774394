//! Block device activity during a timed part, from the kernel's counters.
//!
//! These are the evidence for a cold or warm cache (bytes read from the lab's device while the
//! clock ran) and for the mechanism (requests, merges, flushes, discards, time in the queue,
//! dirtied inodes). The files are opened beforehand and read by pread just outside the timed part,
//! so that a job under another user can read them too and nothing is allocated for it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use serde_json::{json, Map, Value};

use crate::clock::monotonic_ns;
use crate::counters::debugfs::{self, WriteBack};
use crate::counters::{number, write_back_of};
use crate::error::{Doing, Error, Result};

/// `stat` counts sectors of 512 bytes whatever the device's block size
/// (Documentation/block/stat.rst).
pub const SECTOR: u64 = 512;
const MILLISECOND_NS: u64 = 1_000_000;

pub struct Counters {
    devices: Vec<Device>,
}

struct Device {
    name: String,
    stat: File,
    write_back: Option<File>,
}

/// The numbers of `stat`, in the kernel's order. Discards came with 4.19, flushes with 5.5; numbers
/// that the kernel lacks are 0.
pub type Stat = [u64; FIELDS.len()];

/// The `stat` numbers of a device and, if available, its write-back state.
#[derive(Clone, Copy, Debug)]
pub struct Activity {
    stat: Stat,
    write_back: Option<WriteBack>,
}

/// Name in the answer, and the size of the kernel's unit in it. The ninth is not a count but a
/// level.
const FIELDS: [(&str, u64); 17] = [
    ("read_ios", 1),
    ("read_merges", 1),
    ("read_bytes", SECTOR),
    ("read_ns", MILLISECOND_NS),
    ("write_ios", 1),
    ("write_merges", 1),
    ("write_bytes", SECTOR),
    ("write_ns", MILLISECOND_NS),
    ("in_flight", 1),
    ("busy_ns", MILLISECOND_NS),
    ("queue_ns", MILLISECOND_NS),
    ("discard_ios", 1),
    ("discard_merges", 1),
    ("discard_bytes", SECTOR),
    ("discard_ns", MILLISECOND_NS),
    ("flush_ios", 1),
    ("flush_ns", MILLISECOND_NS),
];
pub const READ_SECTORS: usize = 2;
pub const WRITTEN_SECTORS: usize = 6;
const IN_FLIGHT: usize = 8;
const SETTLES_NS: u64 = 2_000_000;
const LOOKS_EVERY: Duration = Duration::from_micros(50);
/// In milliseconds, the kernel's unit.
pub const BUSY_MS: usize = 9;
/// The number of fields that every kernel has.
const OLDEST: usize = 11;

impl Device {
    fn read(&self) -> Result<Stat> {
        let mut text = [0; 512];
        let name = &self.name;
        let n = self
            .stat
            .read_at(&mut text, 0)
            .doing(|| format!("read counters of {name}"))?;
        parse(&text[..n]).ok_or_else(|| {
            Error::verify(format!(
                "read counters of {name}: expected at least {OLDEST} numbers, found {:?}",
                String::from_utf8_lossy(&text[..n])
            ))
        })
    }
}

/// Repeat `read` until nothing is in flight, or until the time `until`.
fn settled(until: u64, mut read: impl FnMut() -> Result<Stat>) -> Result<Stat> {
    loop {
        let stat = read()?;
        if stat[IN_FLIGHT] == 0 || monotonic_ns() >= until {
            return Ok(stat);
        }
        thread::sleep(LOOKS_EVERY);
    }
}

impl Counters {
    /// Open the counters of the named devices, as in /sys/block.
    pub fn open(names: &[String]) -> Result<Self> {
        let mut devices = Vec::with_capacity(names.len());
        for name in names {
            devices.push(Device {
                name: name.clone(),
                stat: open_stat(name)?,
                write_back: write_back_of(name),
            });
        }
        Ok(Counters { devices })
    }

    /// Return one empty reading per device, to be filled by `read`.
    pub fn room(&self) -> Vec<Activity> {
        let none = Activity {
            stat: [0; FIELDS.len()],
            write_back: None,
        };
        vec![none; self.devices.len()]
    }

    /// Read all counters into the result of `room`. The kernel wakes the waiter of a request before
    /// it counts the request as done, so a reading can be one short. While a device reports
    /// requests in flight, this sleeps to let the completion run, for at most two milliseconds
    /// (background write-back never stops).
    pub fn read(&self, into: &mut [Activity]) -> Result<()> {
        let until = monotonic_ns() + SETTLES_NS;
        for (device, activity) in self.devices.iter().zip(into) {
            activity.stat = settled(until, || device.read())?;
            activity.write_back = debugfs::read(&device.write_back);
        }
        Ok(())
    }

    /// Return the activity between two readings, by device name.
    pub fn between(&self, before: &[Activity], after: &[Activity]) -> Map<String, Value> {
        self.devices
            .iter()
            .zip(before.iter().zip(after))
            .map(|(device, (before, after))| (device.name.clone(), difference(before, after)))
            .collect()
    }
}

/// Open the `stat` file of a device named as in /sys/block.
pub fn open_stat(name: &str) -> Result<File> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(Error::bad(format!(
            "devices: expected a name from /sys/block, found {name:?}"
        )));
    }
    // class/block has partitions too, which /sys/block does not.
    let path = format!("/sys/class/block/{name}/stat");
    File::open(&path).doing(|| format!("open counters {path}"))
}

fn difference(before: &Activity, after: &Activity) -> Value {
    let mut found = Map::new();
    for (place, (name, unit)) in FIELDS.iter().enumerate() {
        if place != IN_FLIGHT {
            let more = wrapping_more(before.stat[place], after.stat[place], *unit);
            found.insert(name.to_string(), json!(more));
        }
    }
    if let (Some(before), Some(after)) = (before.write_back, after.write_back) {
        let more = |before: u64, after: u64| after.wrapping_sub(before) as i64;
        let add: [(&str, i64); 4] = [
            ("inodes_dirty_more", more(before.inodes, after.inodes)),
            (
                "inodes_dirty_by_time_more",
                more(before.inodes_by_time, after.inodes_by_time),
            ),
            (
                "dirtied_bytes",
                more(before.dirtied_bytes, after.dirtied_bytes),
            ),
            (
                "written_back_bytes",
                more(before.written_bytes, after.written_bytes),
            ),
        ];
        found.extend(add.map(|(name, value)| (name.to_string(), json!(value))));
    }
    Value::Object(found)
}

/// The kernel's counts have 64 bits, its times 32: milliseconds wrap after seven weeks of waiting.
fn wrapping_more(before: u64, after: u64, unit: u64) -> u64 {
    let more = if unit == MILLISECOND_NS {
        u64::from((after as u32).wrapping_sub(before as u32))
    } else {
        after.wrapping_sub(before)
    };
    more.wrapping_mul(unit)
}

/// Parse a `stat` file, without allocation; None for anything else.
pub fn parse(text: &[u8]) -> Option<Stat> {
    let mut stat = [0; FIELDS.len()];
    let mut found = 0;
    for word in text.split(u8::is_ascii_whitespace) {
        if word.is_empty() {
            continue;
        }
        let value = number(word)?;
        if let Some(place) = stat.get_mut(found) {
            *place = value;
        }
        found += 1;
    }
    (found >= OLDEST).then_some(stat)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn activity(text: &str) -> Activity {
        Activity {
            stat: parse(text.as_bytes()).unwrap(),
            write_back: None,
        }
    }

    #[test]
    fn the_seventeen_numbers_of_a_present_kernel_are_read_by_position() {
        let zeros = activity(&"0 ".repeat(17));
        let found = difference(
            &zeros,
            &activity("   1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n"),
        );
        let ms = 1_000_000;
        assert_eq!(
            found,
            json!({
                "read_ios": 1, "read_merges": 2, "read_bytes": 3 * 512, "read_ns": 4 * ms,
                "write_ios": 5, "write_merges": 6, "write_bytes": 7 * 512, "write_ns": 8 * ms,
                "busy_ns": 10 * ms, "queue_ns": 11 * ms,
                "discard_ios": 12, "discard_merges": 13, "discard_bytes": 14 * 512, "discard_ns": 15 * ms,
                "flush_ios": 16, "flush_ns": 17 * ms,
            })
        );
    }

    #[test]
    fn an_old_kernel_has_no_discards_and_flushes_and_a_new_one_may_have_more() {
        let old = parse(b"1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!(old[11..], [0; 6]);
        assert!(parse("3 ".repeat(20).as_bytes()).is_some());
    }

    #[test]
    fn times_go_round_at_32_bits_and_counts_at_64() {
        let before = activity("18446744073709551615 0 0 4294967295 0 0 0 0 0 0 0");
        let found = difference(&before, &activity("1 0 0 1 0 0 0 0 0 0 0"));
        assert_eq!(
            (&found["read_ios"], &found["read_ns"]),
            (&json!(2), &json!(2_000_000))
        );
    }

    #[test]
    fn a_request_that_is_being_counted_is_waited_for() {
        let (late, counted) = (
            parse(b"63 0 0 0 0 0 0 0 1 0 0").unwrap(),
            parse(b"64 0 0 0 0 0 0 0 0 0 0").unwrap(),
        );
        let mut readings = vec![counted, late, late];
        let stat = settled(u64::MAX, || Ok(readings.pop().unwrap())).unwrap();
        assert_eq!(stat[0], 64);
    }

    #[test]
    fn what_never_ends_is_not_waited_for() {
        let late = parse(b"63 0 0 0 0 0 0 0 1 0 0").unwrap();
        let before = monotonic_ns();
        let stat = settled(before + SETTLES_NS, || Ok(late)).unwrap();
        assert_eq!(stat[0], 63);
        assert!(monotonic_ns() >= before + SETTLES_NS);
    }

    #[test]
    fn anything_else_is_no_reading() {
        assert_eq!(parse(b"1 2 3"), None);
        assert_eq!(parse(b"1 2 3 4 5 x 7 8 9 10 11"), None);
        assert_eq!(parse(b"1 2 3 4 5 -6 7 8 9 10 11"), None);
        assert_eq!(parse(&[0xff; 40]), None);
    }
}
