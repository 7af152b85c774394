//! The content of the file's records, by which every test is checked.
//!
//! All records that one test writes come from one buffer, filled before the clock starts. Its
//! content depends on the seed and the test. Each record's number is stamped into its first eight
//! bytes. That one store is all that the timed part adds; it reveals records that were skipped or
//! written to the wrong place. Zeros stay zeros.

use crate::content::{mix, Content, Kind};

/// Number of bytes at the start of a record that identify it.
pub const STAMP: usize = 8;

/// The content that one test writes. `writer` is the position of the test in the list of thirteen,
/// counting from 1, or 0 for the untimed preparation; plus sixteen for each earlier replicate.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    content: Content,
    writer: u32,
    key: u64,
}

impl Pattern {
    pub fn new(kind: Kind, seed: u64, writer: u32) -> Self {
        Pattern {
            content: Content { kind, seed },
            writer,
            key: mix(seed ^ mix(u64::from(writer) + 1)),
        }
    }

    /// Fill a buffer with a record, except for its stamp.
    pub fn fill(&self, record: &mut [u8]) {
        self.content.fill(self.writer, 0, record);
    }

    #[inline(always)]
    pub fn stamp(&self, record: u32) -> u64 {
        match self.content.kind {
            Kind::Zeros => 0,
            _ => self.key ^ u64::from(record),
        }
    }
}

/// The expected content of the file: all records come from one test, except possibly the first.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub all: Pattern,
    pub first: Pattern,
}

impl Held {
    pub fn by(pattern: Pattern) -> Self {
        Held {
            all: pattern,
            first: pattern,
        }
    }

    #[inline(always)]
    pub fn stamp(&self, record: u32) -> u64 {
        match record {
            0 => self.first.stamp(0),
            _ => self.all.stamp(record),
        }
    }
}

#[inline(always)]
pub fn put_stamp(record: &mut [u8], stamp: u64) {
    record[..STAMP].copy_from_slice(&stamp.to_le_bytes());
}

#[inline(always)]
pub fn stamp_of(record: &[u8]) -> u64 {
    let mut bytes = [0; STAMP];
    bytes.copy_from_slice(&record[..STAMP]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_writers_have_stamps_of_their_own() {
        let of = |writer, record| Pattern::new(Kind::Random, 7, writer).stamp(record);
        let mut stamps: Vec<u64> = (0..20)
            .flat_map(|writer| (0..50).map(move |record| of(writer, record)))
            .collect();
        stamps.sort_unstable();
        stamps.dedup();
        assert_eq!(stamps.len(), 1000);
        assert_eq!(Pattern::new(Kind::Zeros, 7, 3).stamp(9), 0);
    }

    #[test]
    fn a_stamp_is_read_as_it_was_put() {
        let mut record = [1; 16];
        put_stamp(&mut record, 0x0102_0304_0506_0708);
        assert_eq!(record[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(stamp_of(&record), 0x0102_0304_0506_0708);
        assert_eq!(record[8..], [1; 8]);
    }
}
