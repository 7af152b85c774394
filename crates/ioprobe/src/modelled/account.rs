//! What a modelled disk says of itself: what it was asked for, where its time went, and how much later it answered than it should.

use serde_json::{json, Value};

#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
    pub seek_ns: f64,
    pub rotation_ns: f64,
    pub transfer_ns: f64,
    /// Of a disk that does not turn: its latencies.
    pub latency_ns: f64,
    /// From each request's arrival to when its answer was due.
    pub response_ns: u64,
    /// How much later than that the answers went, in sum and at most.
    pub late_ns: u64,
    pub latest_ns: u64,
}

impl Account {
    pub fn to_json(self) -> Value {
        json!({
            "reads": self.reads,
            "read_bytes": self.read_bytes,
            "writes": self.writes,
            "written_bytes": self.written_bytes,
            "flushes": self.flushes,
            "trims": self.trims,
            "read_hits": self.read_hits,
            "operations": self.operations,
            "seeks": self.seeks,
            "seek_ns": self.seek_ns as u64,
            "rotation_ns": self.rotation_ns as u64,
            "transfer_ns": self.transfer_ns as u64,
            "latency_ns": self.latency_ns as u64,
            "response_ns": self.response_ns,
            "late_ns": self.late_ns,
            "latest_ns": self.latest_ns,
        })
    }
}
