//! What is refused before anything is done: fields that do not go together, or that neither dd nor hdparm could follow.

use crate::error::{Error, Result};
use crate::protocol::{
    Common, CopyWith, Share, StreamFlush, StreamJob, StreamOperation as Operation, StreamSync,
};

const LARGEST_BLOCK: usize = 1 << 30;
const LONGEST_S: f64 = 3600.0;
/// Each has a block, and what it writes, in memory.
const MOST_STREAMS: usize = 64;

pub fn check(common: &Common, own: &StreamJob) -> Result<()> {
    let bad = |what: String| Err(Error::bad(format!("request stream: {what}")));
    let reads = own.operation == Operation::Read;
    let writes = matches!(own.operation, Operation::Write | Operation::Rewrite);
    if !(1..=LARGEST_BLOCK).contains(&own.block_size) {
        return bad(format!(
            "block_size: wanted 1 to {LARGEST_BLOCK} bytes, found {}",
            own.block_size
        ));
    }
    if common.replicates != 1 {
        return bad(format!(
            "replicates: a stream is done once, found {}",
            common.replicates
        ));
    }
    if !(1..=MOST_STREAMS).contains(&own.streams) {
        return bad(format!(
            "streams: wanted 1 to {MOST_STREAMS}, found {}",
            own.streams
        ));
    }
    let of_a_set = common.set.is_some() || common.user.is_some();
    if own.device.is_some() && (!reads || of_a_set || own.streams != 1) {
        return bad(
            "device: it is read only, by the probe itself, once and without a set".to_string(),
        );
    }
    let placed = own.position != 0.0 || own.within.is_some() || own.lead_in != 0;
    if placed && own.device.is_none() {
        return bad("position, within, lead_in: of a device only".to_string());
    }
    if own.lead_in % own.block_size.max(1) as u64 != 0 {
        return bad(format!(
            "lead_in: wanted whole blocks of {} bytes, found {}",
            own.block_size, own.lead_in
        ));
    }
    let within = own.within.unwrap_or(1.0);
    if !((0.0..1.0).contains(&own.position) && within > 0.0 && within <= 1.0) {
        return bad(format!(
            "position, within: wanted shares of the device, found {} and {within}",
            own.position
        ));
    }
    if let Some(seconds) = own.seconds {
        if !(reads && seconds > 0.0 && seconds <= LONGEST_S) {
            return bad(format!(
                "seconds: wanted up to {LONGEST_S}, of reading, found {seconds}"
            ));
        }
    }
    if !(own.pause_s >= 0.0 && own.pause_s <= LONGEST_S) {
        return bad(format!(
            "pause_s: wanted 0 to {LONGEST_S}, found {}",
            own.pause_s
        ));
    }
    let of_any_writing =
        own.flush != StreamFlush::None || own.sync != StreamSync::None || !own.truncate;
    if reads && of_any_writing {
        return bad("sync, flush, data, seed and truncate are for writing".to_string());
    }
    if !writes && (own.data != Share::default() || own.seed.is_some()) {
        return bad("data and seed are for writing what the probe makes".to_string());
    }
    if own.operation == Operation::Rewrite && !own.truncate {
        return bad("truncate: a rewrite leaves the file as long as it is".to_string());
    }
    if !reads && own.beside && own.data != Share::default() {
        return bad("beside: /dev/zero has zeros only".to_string());
    }
    let through_calls = own.copy_with == CopyWith::ReadWrite;
    if !through_calls && (own.operation != Operation::Copy || own.direct) {
        return bad("copy_with: copy-file-range is of a copy through the cache".to_string());
    }
    Ok(())
}
