//! What block devices did during a timed part, from the kernel's own counters.
//!
//! These are the evidence for cold and warm: bytes read from the lab's device while the clock ran. The files are opened
//! before and read by pread just outside the timed part, so that a job under another user can read them too.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde_json::{json, Map, Value};

use crate::error::{Doing, Error, Result};

/// `stat` counts in sectors of 512 bytes whatever the device's own block size
/// (Documentation/block/stat.rst).
const SECTOR: u64 = 512;

pub struct Counters {
    devices: Vec<(String, File)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    pub read_ios: u64,
    pub read_bytes: u64,
    pub write_ios: u64,
    pub write_bytes: u64,
    pub discard_ios: u64,
    pub flush_ios: u64,
    pub busy_ns: u64,
}

impl Counters {
    /// Opens the counters of the named devices, as in /sys/block.
    pub fn open(names: &[String]) -> Result<Self> {
        let mut devices = Vec::with_capacity(names.len());
        for name in names {
            if name.is_empty() || name.contains('/') || name.starts_with('.') {
                return Err(Error::bad(format!(
                    "devices: wanted a name as in /sys/block, found {name:?}"
                )));
            }
            // class/block holds partitions too, which /sys/block does not.
            let path = format!("/sys/class/block/{name}/stat");
            let file = File::open(&path).doing(|| format!("open counters {path}"))?;
            devices.push((name.clone(), file));
        }
        Ok(Counters { devices })
    }

    pub fn read(&self) -> Result<Vec<Activity>> {
        self.devices
            .iter()
            .map(|(name, file)| {
                let mut text = [0; 512];
                let n = file
                    .read_at(&mut text, 0)
                    .doing(|| format!("read counters of {name}"))?;
                parse(&String::from_utf8_lossy(&text[..n])).ok_or_else(|| {
                    Error::verify(format!(
                        "read counters of {name}: wanted at least 11 numbers, found {:?}",
                        String::from_utf8_lossy(&text[..n])
                    ))
                })
            })
            .collect()
    }

    /// By name, what happened between two readings.
    pub fn between(&self, before: &[Activity], after: &[Activity]) -> Map<String, Value> {
        self.devices
            .iter()
            .zip(before.iter().zip(after))
            .map(|((name, _), (before, after))| (name.clone(), after.since(before).to_json()))
            .collect()
    }
}

impl Activity {
    fn to_json(self) -> Value {
        json!({
            "read_ios": self.read_ios,
            "read_bytes": self.read_bytes,
            "write_ios": self.write_ios,
            "write_bytes": self.write_bytes,
            "discard_ios": self.discard_ios,
            "flush_ios": self.flush_ios,
            "busy_ns": self.busy_ns,
        })
    }

    fn since(&self, before: &Activity) -> Activity {
        Activity {
            read_ios: self.read_ios.wrapping_sub(before.read_ios),
            read_bytes: self.read_bytes.wrapping_sub(before.read_bytes),
            write_ios: self.write_ios.wrapping_sub(before.write_ios),
            write_bytes: self.write_bytes.wrapping_sub(before.write_bytes),
            discard_ios: self.discard_ios.wrapping_sub(before.discard_ios),
            flush_ios: self.flush_ios.wrapping_sub(before.flush_ios),
            busy_ns: self.busy_ns.wrapping_sub(before.busy_ns),
        }
    }
}

/// The counters wrap, and so do their multiples: only differences mean anything. Discards are counted since 4.19, flushes since 5.5; where they are not, they are 0.
pub fn parse(text: &str) -> Option<Activity> {
    let fields = text
        .split_whitespace()
        .map(str::parse)
        .collect::<std::result::Result<Vec<u64>, _>>()
        .ok()?;
    if fields.len() < 11 {
        return None;
    }
    let later = |index: usize| fields.get(index).copied().unwrap_or(0);
    Some(Activity {
        read_ios: fields[0],
        read_bytes: fields[2].wrapping_mul(SECTOR),
        write_ios: fields[4],
        write_bytes: fields[6].wrapping_mul(SECTOR),
        discard_ios: later(11),
        flush_ios: later(15),
        busy_ns: fields[9].wrapping_mul(1_000_000),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seventeen_numbers_of_a_present_kernel_are_read_by_position() {
        let found = parse("   1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n").unwrap();
        assert_eq!(
            found,
            Activity {
                read_ios: 1,
                read_bytes: 3 * 512,
                write_ios: 5,
                write_bytes: 7 * 512,
                discard_ios: 12,
                flush_ios: 16,
                busy_ns: 10_000_000,
            }
        );
    }

    #[test]
    fn an_old_kernel_has_no_discards_and_flushes() {
        let found = parse("1 2 3 4 5 6 7 8 9 10 11").unwrap();
        assert_eq!((found.discard_ios, found.flush_ios), (0, 0));
    }

    #[test]
    fn anything_else_is_no_reading() {
        assert_eq!(parse("1 2 3"), None);
        assert_eq!(parse("1 2 3 4 5 x 7 8 9 10 11"), None);
    }
}
