//! What is refused before anything is done: fields that do not go together, or that neither dd nor hdparm could follow.

use crate::error::{Error, Result};
use crate::wire::{Common, Share, StreamFlush, StreamJob, StreamOperation, StreamSync};

const LARGEST_BLOCK: usize = 1 << 30;
const LONGEST_S: f64 = 3600.0;

pub fn check(common: &Common, own: &StreamJob) -> Result<()> {
    let bad = |what: String| Err(Error::bad(format!("request stream: {what}")));
    let writes = own.operation == StreamOperation::Write;
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
    if own.device.is_some() && (writes || common.set.is_some() || common.user.is_some()) {
        return bad("device: it is read only, by the probe itself, and without a set".to_string());
    }
    if let Some(seconds) = own.seconds {
        if writes || !(seconds > 0.0 && seconds <= LONGEST_S) {
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
    let of_writing = own.flush != StreamFlush::None
        || own.sync != StreamSync::None
        || own.data != Share::ZEROS
        || own.seed.is_some()
        || !own.truncate;
    if !writes && of_writing {
        return bad("sync, flush, data, seed and truncate are for writing".to_string());
    }
    if writes && own.beside && own.data != Share::ZEROS {
        return bad("beside: /dev/zero has zeros only".to_string());
    }
    Ok(())
}
