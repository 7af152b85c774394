//! Energy by the processor's own meters (RAPL), from /sys/class/powercap.
//!
//! Reads whole packages and, where metered separately, their memory; not subzones, which are
//! already included. The meters update about every millisecond and cover everything that the
//! package did, so they say little about a run of a few milliseconds. Only root may read them
//! (since 5.10).

use std::fs::{self, File};

use serde_json::{json, Map, Value};

use super::{number, pread};

pub const POWERCAP: &str = "/sys/class/powercap";
const MOST: usize = 16;

struct Meter {
    zone: String,
    name: String,
    file: Option<File>,
    /// The counter wraps to 0 after this value.
    range_uj: u64,
}

pub struct Meters(Vec<Meter>);

/// The reading of each meter.
pub type Microjoules = [Option<u64>; MOST];

impl Meters {
    pub fn none() -> Self {
        Meters(Vec::new())
    }

    pub fn open(folder: &str) -> Self {
        let mut zones: Vec<String> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|zone| zone.starts_with("intel-rapl:")) // AMD's too; intel-rapl-mmio meters the same zones a second time
            .collect();
        zones.sort();
        let meters = zones.into_iter().filter_map(|zone| meter(folder, zone));
        Meters(meters.take(MOST).collect())
    }

    pub fn read(&self) -> Microjoules {
        let mut found = [None; MOST];
        for (place, meter) in found.iter_mut().zip(&self.0) {
            let mut room = [0; 32];
            *place = pread(&meter.file, &mut room).and_then(|text| number(trimmed(text)));
        }
        found
    }

    /// Return the energy used, by zone; null if no meter can be read.
    pub fn between(&self, before: &Microjoules, after: &Microjoules) -> Value {
        let mut found = Map::new();
        for (meter, pair) in self.0.iter().zip(before.iter().zip(after)) {
            if let (Some(before), Some(after)) = pair {
                let uj = used(*before, *after, meter.range_uj);
                found.insert(meter.zone.clone(), json!({"name": meter.name, "uj": uj}));
            }
        }
        if found.is_empty() {
            Value::Null
        } else {
            Value::Object(found)
        }
    }
}

fn meter(folder: &str, zone: String) -> Option<Meter> {
    let text = |file: &str| fs::read_to_string(format!("{folder}/{zone}/{file}")).ok();
    let name = text("name")?.trim().to_string();
    if !(name.starts_with("package") || name == "dram") {
        return None;
    }
    Some(Meter {
        range_uj: text("max_energy_range_uj")?.trim().parse().ok()?,
        file: File::open(format!("{folder}/{zone}/energy_uj")).ok(),
        name,
        zone,
    })
}

/// Assumes at most one wrap: for a second one, a package would have to use its whole range (some 65
/// to 262 kJ) within one run.
fn used(before: u64, after: u64, range_uj: u64) -> u64 {
    if after >= before {
        after - before
    } else {
        range_uj.saturating_sub(before) + after
    }
}

fn trimmed(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\n").unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_that_starts_again_has_used_what_was_left_and_what_it_shows() {
        assert_eq!(used(100, 350, 1000), 250);
        assert_eq!(used(990, 15, 1000), 25);
        assert_eq!(used(7, 7, 1000), 0);
    }

    #[test]
    fn a_machine_without_meters_has_no_energy() {
        let meters = Meters::open("/nowhere");
        assert_eq!(meters.between(&meters.read(), &meters.read()), Value::Null);
    }
}
