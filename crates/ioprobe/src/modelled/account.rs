//! What a modelled disk says of itself: what it was asked for, where its time went, and how much later it answered than it should.

use serde::{Serialize, Serializer};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Account {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    pub trims: u64,
    /// Reads that were in the disk's memory already.
    pub read_hits: u64,
    /// Times that the arm, or the flash, was set to work.
    pub operations: u64,
    /// Of these, how many moved the arm.
    pub seeks: u64,
    #[serde(serialize_with = "whole")]
    pub seek_ns: f64,
    #[serde(serialize_with = "whole")]
    pub rotation_ns: f64,
    #[serde(serialize_with = "whole")]
    pub transfer_ns: f64,
    /// Of a disk that does not turn: its latencies.
    #[serde(serialize_with = "whole")]
    pub latency_ns: f64,
    /// From each request's arrival to when its answer was due.
    pub response_ns: u64,
    /// How much later than that the answers went, in sum and at most.
    pub late_ns: u64,
    pub latest_ns: u64,
}

/// Nanoseconds without their fraction.
fn whole<S: Serializer>(ns: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(*ns as u64)
}
