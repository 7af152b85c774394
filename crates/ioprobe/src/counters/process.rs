//! File I/O of this process: /proc/self/io, which includes its reaped children.
//!
//! `rchar` and `wchar` are bytes requested by read and write calls, wherever they were served from;
//! `read_bytes` is what had to be fetched from devices (including read-ahead and metadata),
//! `write_bytes` what was dirtied in the page cache or written directly
//! (Documentation/filesystems/proc.rst). So bytes requested minus bytes fetched is a lower bound on
//! what the page cache served.

use std::fs::File;

use serde_json::{json, Value};

use super::{lines, number, pread};

const NAMES: [&[u8]; 7] = [
    b"rchar",
    b"wchar",
    b"syscr",
    b"syscw",
    b"read_bytes",
    b"write_bytes",
    b"cancelled_write_bytes",
];

pub struct Own(Option<File>);

#[derive(Clone, Copy)]
pub struct OwnCounts {
    counts: [u64; NAMES.len()],
    /// Length of the text: reading it is itself a read, which the next reading counts.
    text_bytes: u64,
}

impl Own {
    pub fn none() -> Self {
        Own(None)
    }

    pub fn open() -> Self {
        Own(File::open("/proc/self/io").ok())
    }

    pub fn read(&self) -> Option<OwnCounts> {
        let mut room = [0; 512];
        parse(pread(&self.0, &mut room)?)
    }
}

fn parse(text: &[u8]) -> Option<OwnCounts> {
    let mut counts = [0; NAMES.len()];
    let mut found = 0;
    for line in lines(text) {
        let colon = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => colon,
            None => continue,
        };
        if let Some(place) = NAMES.iter().position(|name| *name == &line[..colon]) {
            counts[place] = number(line.get(colon + 2..)?)?;
            found += 1;
        }
    }
    (found == NAMES.len()).then_some(OwnCounts {
        counts,
        text_bytes: text.len() as u64,
    })
}

pub fn between(before: &Option<OwnCounts>, after: &Option<OwnCounts>) -> Value {
    let (before, after) = match (before, after) {
        (Some(before), Some(after)) => (before, after),
        _ => return Value::Null,
    };
    let more = |place: usize| after.counts[place].wrapping_sub(before.counts[place]);
    let read = more(0).saturating_sub(before.text_bytes);
    let fetched = more(4);
    json!({
        "read_bytes": read,
        "written_bytes": more(1),
        "read_calls": more(2).saturating_sub(1),
        "write_calls": more(3),
        "fetched_bytes": fetched,
        "dirtied_bytes": more(5),
        "undirtied_bytes": more(6),
        "cache_hit_bytes": read.saturating_sub(fetched),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        b"rchar: 10\nwchar: 20\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\n\
        cancelled_write_bytes: 7\n";

    #[test]
    fn the_reading_itself_is_taken_off() {
        let before = parse(TEXT);
        let mut after = before;
        let own = TEXT.len() as u64;
        after.as_mut().unwrap().counts = [10 + own + 100, 20, 3 + 1 + 2, 4, 5 + 40, 6, 7];
        let found = between(&before, &after);
        assert_eq!(found["read_bytes"], 100);
        assert_eq!(found["read_calls"], 2);
        assert_eq!(found["fetched_bytes"], 40);
        assert_eq!(found["cache_hit_bytes"], 60);
        assert_eq!(found["written_bytes"], 0);
    }

    #[test]
    fn a_kernel_without_this_accounting_says_nothing() {
        assert!(parse(b"rchar: 10\nwchar: 20\n").is_none());
        assert!(parse(b"").is_none());
        assert_eq!(between(&None, &parse(TEXT)), Value::Null);
    }
}
