//! The number of possible CPUs, according to the kernel.

use std::fs;

use crate::error::{Doing, Error, Result};

const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Return the number of possible CPUs: per-CPU BPF maps hold a value for each of them.
pub fn possible() -> Result<usize> {
    let text = fs::read_to_string(POSSIBLE).doing(|| format!("read {POSSIBLE}"))?;
    count(text.trim()).ok_or_else(|| {
        Error::verify(format!(
            "{POSSIBLE}: expected ranges of numbers, found {text:?}"
        ))
    })
}

/// Count the numbers in ranges: "0-3,8" has five.
fn count(ranges: &str) -> Option<usize> {
    let lengths = ranges.split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        Some((first..=last).len())
    });
    lengths.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_of_ranges_are_counted() {
        assert_eq!(count("0"), Some(1));
        assert_eq!(count("0-2,5"), Some(4));
        assert_eq!(count("0-3,8-127"), Some(124));
        for none in ["", "x", "none", "0-", "-1", "0-4000000000", "1,,2"] {
            assert_eq!(count(none), None, "{none}");
        }
    }
}
