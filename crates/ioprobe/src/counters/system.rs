//! Machine-wide counters: page cache and reclaim (/proc/vmstat), and pressure stalls
//! (/proc/pressure).
//!
//! These include all other processes of the machine. Events (pgpgin and the like) are summed over
//! all CPUs when read. Page counts (nr_dirtied and the like) are updated by each CPU every second,
//! or when some dozens have accumulated: for a short run they may lag, equally for all arms.

use std::fs::File;

use serde_json::{json, Map, Value};

use super::{lines, number, pread};

/// Monotonic counters: the kernel's name, and ours. Several may add up to one of ours.
const EVENTS: [(&[u8], &str); 14] = [
    (b"pgpgin", "read_kib"),
    (b"pgpgout", "written_kib"),
    (b"pswpin", "pages_swapped_in"),
    (b"pswpout", "pages_swapped_out"),
    (b"pgmajfault", "faults_major"),
    (b"nr_dirtied", "pages_dirtied"),
    (b"nr_written", "pages_written_back"),
    (b"workingset_refault_file", "pages_refaulted"),
    (b"pgscan_direct", "pages_scanned_directly"),
    (b"pgsteal_kswapd", "pages_reclaimed"),
    (b"pgsteal_direct", "pages_reclaimed"),
    (b"pginodesteal", "inodes_reclaimed"),
    (b"kswapd_inodesteal", "inodes_reclaimed"),
    (b"thp_fault_alloc", "huge_pages_faulted"),
];
/// Levels that may grow or shrink: reported as the difference.
const LEVELS: [(&[u8], &str); 3] = [
    (b"nr_dirty", "pages_dirty"),
    (b"nr_writeback", "pages_under_write_back"),
    (b"nr_file_pages", "pages_cached"),
];
const NUMBERS: usize = EVENTS.len() + LEVELS.len();
/// The 192 lines of a 2025 kernel take 4.4 KiB.
const ROOM: usize = 8 * 1024;

pub struct System {
    file: Option<File>,
    /// Which of the numbers this kernel has.
    known: [bool; NUMBERS],
}

pub type SystemCounts = [u64; NUMBERS];

impl System {
    pub fn none() -> Self {
        System {
            file: None,
            known: [false; NUMBERS],
        }
    }

    pub fn open() -> Self {
        let mut system = System {
            file: File::open("/proc/vmstat").ok(),
            known: [false; NUMBERS],
        };
        let mut room = [0; ROOM];
        if let Some(text) = pread(&system.file, &mut room) {
            system.known = parse(text).1;
        }
        system
    }

    pub fn read(&self) -> Option<SystemCounts> {
        let mut room = [0; ROOM];
        Some(parse(pread(&self.file, &mut room)?).0)
    }

    pub fn between(&self, before: &Option<SystemCounts>, after: &Option<SystemCounts>) -> Value {
        match (before, after) {
            (Some(before), Some(after)) => difference(&self.known, before, after),
            _ => Value::Null,
        }
    }
}

fn parse(text: &[u8]) -> (SystemCounts, [bool; NUMBERS]) {
    let (mut counts, mut known) = ([0; NUMBERS], [false; NUMBERS]);
    for line in lines(text) {
        let space = match line.iter().position(|byte| *byte == b' ') {
            Some(space) => space,
            None => continue,
        };
        let wanted = EVENTS.iter().chain(&LEVELS).map(|(name, _)| *name);
        for (place, name) in wanted.enumerate() {
            if name == &line[..space] {
                if let Some(value) = number(&line[space + 1..]) {
                    counts[place] = value;
                    known[place] = true;
                }
                break;
            }
        }
    }
    (counts, known)
}

fn difference(known: &[bool; NUMBERS], before: &SystemCounts, after: &SystemCounts) -> Value {
    let mut found = Map::new();
    for (place, (_, name)) in EVENTS.iter().enumerate() {
        if known[place] {
            let more = after[place].wrapping_sub(before[place]);
            let sum = found.get(*name).and_then(Value::as_u64).unwrap_or(0);
            found.insert(name.to_string(), json!(sum + more));
        }
    }
    for (place, (_, name)) in (EVENTS.len()..).zip(&LEVELS) {
        if known[place] {
            let more = after[place].wrapping_sub(before[place]) as i64;
            found.insert(format!("{name}_more"), json!(more));
        }
    }
    Value::Object(found)
}

const RESOURCES: [&str; 3] = ["io", "cpu", "memory"];

/// Pressure stall information (Documentation/accounting/psi.rst): microseconds in which some, or
/// all, tasks waited.
pub struct Pressure([Option<File>; 3]);

/// For each resource, the totals of `some` and `full`.
pub type Stalls = [Option<(u64, u64)>; 3];

impl Pressure {
    pub fn none() -> Self {
        Pressure([None, None, None])
    }

    pub fn open() -> Self {
        Pressure(RESOURCES.map(|name| File::open(format!("/proc/pressure/{name}")).ok()))
    }

    pub fn read(&self) -> Stalls {
        let mut stalls = [None; 3];
        for (stall, file) in stalls.iter_mut().zip(&self.0) {
            let mut room = [0; 512];
            *stall = pread(file, &mut room).and_then(totals);
        }
        stalls
    }

    /// Return the stall times; null if the kernel was built or booted without PSI.
    pub fn between(&self, before: &Stalls, after: &Stalls) -> Value {
        let mut found = Map::new();
        for (name, pair) in RESOURCES.iter().zip(before.iter().zip(after)) {
            if let (Some(before), Some(after)) = pair {
                let ns = |before: u64, after: u64| after.saturating_sub(before) * 1000;
                found.insert(
                    name.to_string(),
                    json!({"some_ns": ns(before.0, after.0), "full_ns": ns(before.1, after.1)}),
                );
            }
        }
        if found.is_empty() {
            Value::Null
        } else {
            Value::Object(found)
        }
    }
}

/// Kernels before 5.13 have no `full` line for the CPU: it is 0 there, as it is by definition.
fn totals(text: &[u8]) -> Option<(u64, u64)> {
    let total = |kind: &[u8]| {
        let line = lines(text).find(|line| line.starts_with(kind))?;
        let start = line.windows(6).position(|part| part == b"total=")? + 6;
        number(&line[start..])
    };
    Some((total(b"some ")?, total(b"full ").unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_their_whole_name() {
        let text = b"pgpginx 9\npgpgin 5\nnr_dirty_threshold 77\nnr_dirty 3\npgsteal_kswapd 4\npgsteal_direct 6\n";
        let (before, known) = parse(text);
        let (after, _) = parse(
            b"pgpgin 8\nnr_dirty 1\npgsteal_kswapd 5\npgsteal_direct 8\nnr_dirty_threshold 1\n",
        );
        let found = difference(&known, &before, &after);
        assert_eq!(
            found,
            json!({"read_kib": 3, "pages_reclaimed": 3, "pages_dirty_more": -2})
        );
    }

    #[test]
    fn pressure_is_the_total_of_either_line_and_nothing_where_it_is_switched_off() {
        let text = b"some avg10=4.26 avg60=3.40 avg300=3.44 total=2008194113\nfull avg10=3.51 avg60=2.75 avg300=2.71 total=1470017745\n";
        assert_eq!(totals(text), Some((2_008_194_113, 1_470_017_745)));
        assert_eq!(totals(b"some avg10=0.00 total=7\n"), Some((7, 0)));
        assert_eq!(totals(b""), None);
        let none = Pressure::none();
        assert_eq!(none.between(&none.read(), &none.read()), Value::Null);
    }
}
