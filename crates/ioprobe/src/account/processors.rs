//! The kernel's lists of processors: those that are there now, and how many there may ever be.

use std::fs;

use libc::c_int;

use crate::error::{Doing, Error, Result};

const FOLDER: &str = "/sys/devices/system/cpu";

/// Numbers of the processors that are there now.
pub fn online() -> Result<Vec<c_int>> {
    listed("online")
}

/// How many there may ever be: so many values a BPF map has for each key.
pub fn possible() -> Result<usize> {
    Ok(listed("possible")?.len())
}

fn listed(file: &str) -> Result<Vec<c_int>> {
    let path = format!("{FOLDER}/{file}");
    let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    numbers(text.trim())
        .ok_or_else(|| Error::verify(format!("{path}: wanted ranges of numbers, found {text:?}")))
}

/// "0-3,8" is 0, 1, 2, 3 and 8.
fn numbers(text: &str) -> Option<Vec<c_int>> {
    let mut found = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        found.extend((first..=last).map(c_int::from));
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_processors_are_listed() {
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(numbers("0-3,8-127").map(|found| found.len()), Some(124));
        for none in ["", "x", "none", "0-", "-1", "0-4000000000", "1,,2"] {
            assert_eq!(numbers(none), None, "{none}");
        }
    }
}
