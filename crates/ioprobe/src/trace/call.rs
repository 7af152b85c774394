//! Counts, errors and times of the system calls of a process tree.
//!
//! Device requests have the same times. Times are binned into quarter octaves, which BPF can
//! compute with a few shifts: a percentile read from them is accurate to 25 %.

use std::collections::BTreeMap;

use serde::Serialize;

use super::arch::COMPAT_NAME;
use super::names;

/// Bars 0 to 3 are 0 to 3 ns; then four per octave.
pub const BARS: usize = 144;
/// The end of the last bar: 2^37 - 1 ns, some 137 s. Longer times count as this one.
pub const LONGEST_NS: u64 = (1 << 37) - 1;
/// Errors are returned as -1 to -4095 (include/linux/err.h).
pub const LAST_ERRNO: i64 = 4095;

/// The table that the number of a call belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Abi {
    Native,
    /// Calls of 32-bit programs; on x86-64 also those by int 0x80.
    Compat,
}

/// A histogram of times.
#[derive(Clone, Debug, Default)]
pub struct Times {
    pub total_ns: u64,
    /// By `bar`; empty, or `BARS` counts.
    pub bars: Vec<u64>,
    /// Events that ended without a start being seen.
    pub untimed: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Call {
    pub times: Times,
    pub errors: BTreeMap<u32, u64>,
}

/// All calls of a process tree that returned.
#[derive(Debug)]
pub struct Account {
    pub calls: BTreeMap<(Abi, u32), Call>,
    /// Events that the kernel had no room for. If there are any, the counts are too low.
    pub lost: u64,
}

/// Return the longest time in a bar.
pub fn longest_ns(bar: usize) -> u64 {
    if bar < 4 {
        return bar as u64;
    }
    let (octave, quarter) = (bar / 4 + 1, bar as u64 % 4);
    ((5 + quarter) << (octave - 2)) - 1
}

impl Times {
    pub fn count(&self) -> u64 {
        self.bars.iter().sum::<u64>() + self.untimed
    }

    pub fn report(&self) -> TimesReport {
        TimesReport {
            count: self.count(),
            total_ns: self.total_ns,
            untimed: self.untimed,
            histogram: (self.bars.iter().enumerate())
                .filter(|(_, count)| **count > 0)
                .map(|(bar, count)| (longest_ns(bar), *count))
                .collect(),
        }
    }
}

/// A histogram of times, as reported in the answer.
#[derive(Serialize)]
pub struct TimesReport {
    count: u64,
    total_ns: u64,
    untimed: u64,
    /// Upper end of each bar in nanoseconds, and its count.
    histogram: Vec<(u64, u64)>,
}

/// One system call, as reported in the answer.
#[derive(Serialize)]
struct CallReport<'a> {
    #[serde(flatten)]
    times: TimesReport,
    errors: &'a BTreeMap<u32, u64>,
}

/// All calls, as reported in the answer, by name.
#[derive(Serialize)]
pub struct Report<'a> {
    lost: u64,
    calls: BTreeMap<String, CallReport<'a>>,
}

impl Account {
    pub fn report(&self) -> Report<'_> {
        let calls = (self.calls.iter())
            .filter(|(_, call)| call.times.count() > 0)
            .map(|((abi, number), call)| {
                let (times, errors) = (call.times.report(), &call.errors);
                (title(*abi, *number), CallReport { times, errors })
            });
        Report {
            lost: self.lost,
            calls: calls.collect(),
        }
    }
}

fn title(abi: Abi, number: u32) -> String {
    let name = names::name(abi, number);
    match abi {
        Abi::Native => name,
        Abi::Compat => format!("{name}@{COMPAT_NAME}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Return the bar of a time, computed as in the BPF programs.
    fn bar(ns: u64) -> usize {
        let ns = ns.min(LONGEST_NS);
        if ns < 4 {
            return ns as usize;
        }
        let octave = 63 - ns.leading_zeros();
        (octave as usize - 1) * 4 + (ns >> (octave - 2) & 3) as usize
    }

    #[test]
    fn bars_touch_and_are_a_quarter_of_an_octave() {
        let mut first = 0;
        for index in 0..BARS {
            let last = longest_ns(index);
            assert_eq!((bar(first), bar(last)), (index, index), "{first} to {last}");
            assert!(last - first <= first / 4);
            first = last + 1;
        }
        assert_eq!(first, LONGEST_NS + 1);
        assert_eq!(bar(u64::MAX), BARS - 1);
    }

    #[test]
    fn counts_errors_and_times_are_listed_by_name() {
        let mut bars = vec![0; BARS];
        bars[bar(100)] = 2;
        let times = Times {
            total_ns: 200,
            bars,
            untimed: 1,
        };
        let errors = [(2, 1)].into_iter().collect();
        let call = Call { times, errors };
        let calls = [
            ((Abi::Native, 500), call.clone()),
            ((Abi::Compat, 500), call),
        ];
        let account = Account {
            calls: calls.into_iter().collect(),
            lost: 0,
        };
        let expected = json!({
            "count": 3, "errors": {"2": 1}, "total_ns": 200, "untimed": 1, "histogram": [[111, 2]],
        });
        let compat = format!("syscall_500@{COMPAT_NAME}");
        assert_eq!(
            serde_json::to_value(account.report()).unwrap(),
            json!({"lost": 0, "calls": {"syscall_500": expected, compat: expected}})
        );
    }
}
