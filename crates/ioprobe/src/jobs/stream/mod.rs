//! The `stream` job: sequential reading, writing or copying of files, or reading of the lab's
//! device, as dd and hdparm do it, by one stream or by several at once.
//!
//! What the originals leave to chance is controlled or reported: cached pages are dropped at the
//! start (unless the job asks to start as the original does), the number of cached pages at the
//! start is in the answer, and the data is known and read back.

mod copying;
mod crew;
mod data;
mod device;
mod files;
mod part;
mod source;
mod timed;
mod verify;

use std::collections::BTreeMap;
use std::os::unix::io::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

use serde::Serialize;
use serde_json::{json, Value};

use self::crew::Ready;
pub use self::device::LabDevice;
use self::source::{Start, Target};
use self::timed::{Done, Ended};
use super::act_as;
use super::stopwatch::{Answer, Stopwatch};
use super::stretch::Stretch;
use super::usage::UsageScope;
use super::watch::Watch;
use crate::clock::Clock;
use crate::counters::devices::Counters;
use crate::error::{Error, Result};
use crate::fileset::Registry;
use crate::isolate::Lifeline;
use crate::protocol::{
    Common, CopyWith, Share, StreamFlush, StreamJob, StreamOperation as Operation, StreamSync,
};
use crate::recorder::{Latency, LatencyRecorder};
use crate::sys::files::sync;

/// What was done, and the part of the answer that all jobs share.
pub struct Outcome {
    done: Done,
    start: Start,
    wall_ns: u64,
    answer: Answer,
    streams: Vec<Stream>,
    operations: BTreeMap<&'static str, Latency>,
}

/// The result of one stream, as a separate program would have reported it.
#[derive(Serialize)]
struct Stream {
    bytes: u64,
    blocks: u64,
    ended: Ended,
    start_ns: u64,
    end_ns: u64,
    bytes_per_s: f64,
}

pub fn run(
    (common, own): (Common, StreamJob),
    registry: &mut Registry,
    device: Option<LabDevice>,
    (clock, stretch): (&Clock, &mut Stretch),
    lifeline: &Lifeline,
) -> Result<Value> {
    check(&common, &own)?;
    let mut timer = Timer {
        common: &common,
        own: &own,
        clock,
        stretch,
        lifeline,
    };
    let outcome = match device {
        Some(device) => timer.read_device(&device)?,
        None => {
            let name = common
                .set
                .as_deref()
                .ok_or_else(|| Error::bad("request stream: expected a set or a device"))?;
            let set = registry.get(name)?;
            let count = files::needed(&own);
            let target = Target::new(set, common.view.as_deref(), &common.files, count)?;
            match own.operation {
                Operation::Read => timer.read_files(&target)?,
                Operation::Write | Operation::Rewrite => timer.write_files(target)?,
                Operation::Copy => timer.copy_files(target)?,
            }
        }
    };
    complete(outcome)
}

/// Everything that is needed to time streams.
struct Timer<'a> {
    common: &'a Common,
    own: &'a StreamJob,
    clock: &'a Clock,
    stretch: &'a mut Stretch,
    lifeline: &'a Lifeline,
}

impl Timer<'_> {
    /// Sync and pause, like hdparm.
    fn settle(&self) {
        if self.own.pause_s > 0.0 {
            sync();
            sleep(Duration::from_secs_f64(self.own.pause_s));
        }
    }

    fn limit_ticks(&self) -> Option<u64> {
        let hz = self.clock.hz() as f64;
        self.own.seconds.map(|seconds| (seconds * hz) as u64)
    }

    /// Open the files and run the streams as the requested user. Counting starts when all files are
    /// open.
    fn timed(
        &mut self,
        start: Start,
        opened: impl FnOnce() -> Result<Vec<Ready>>,
    ) -> Result<Outcome> {
        let (common, clock) = (self.common, self.clock);
        let counters = Counters::open(&common.devices)?;
        let borrowed = act_as(common.user, self.lifeline)?;
        let ready = opened()?;
        let scope = match ready.len() {
            1 => UsageScope::ThisThread,
            _ => UsageScope::ThisProcess,
        };
        let mut watch = Watch::begin(counters, common.peer.as_deref())?;
        let (stopwatch, worked) = crew::perform(ready, clock, || Stopwatch::start(scope));
        let worked = worked.map(|ended| {
            let span = crew::whole(&ended);
            let timed = stopwatch.stop(&span, |whole| whole, (clock, &mut *self.stretch), common);
            (timed, span, ended)
        });
        drop(borrowed);
        watch.end()?;
        let (timed, span, ended) = worked?;
        Ok(Outcome {
            done: crew::sum(&ended),
            start,
            wall_ns: timed.wall_ns,
            answer: timed.answer(&watch, common.sync_after.as_deref())?,
            streams: (ended.iter())
                .map(|one| stream_result(one, span.start, clock))
                .collect(),
            operations: self.operations(ended),
        })
    }

    /// Return the latencies by operation, of all streams together.
    fn operations(&self, ended: Vec<crew::Ended>) -> BTreeMap<&'static str, Latency> {
        let (mut flush, mut close) = (LatencyRecorder::new(), LatencyRecorder::new());
        let mut block: Option<LatencyRecorder> = None;
        let mut left_open: Vec<OwnedFd> = Vec::new();
        for one in ended {
            if let Some(ticks) = one.recorders.flush_ticks {
                flush.record(ticks);
            }
            if let Some(ticks) = one.recorders.close_ticks {
                close.record(ticks);
            }
            match &mut block {
                None => block = Some(one.recorders.block),
                Some(all) => all.absorb(one.recorders.block),
            }
            left_open.extend(one.open);
        }
        let flush_name = match self.own.flush {
            StreamFlush::Fdatasync => "fdatasync",
            _ => "fsync",
        };
        let block = block.unwrap_or_else(LatencyRecorder::new);
        let mut operations = BTreeMap::new();
        for (name, recorder) in [
            (name_of_a_block(self.own.operation), block),
            (flush_name, flush),
            ("close", close),
        ] {
            let latency = recorder.finish(self.clock, 0, self.own.histograms);
            if latency.count > 0 {
                operations.insert(name, latency);
            }
        }
        operations
    }
}

fn name_of_a_block(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "read",
        Operation::Write | Operation::Rewrite => "write",
        Operation::Copy => "copy",
    }
}

fn stream_result(one: &crew::Ended, first: u64, clock: &Clock) -> Stream {
    let ns = clock.ns_of(one.span.ticks()).max(1);
    Stream {
        bytes: one.done.bytes,
        blocks: one.done.blocks,
        ended: one.done.ended,
        start_ns: clock.ns_of(one.span.start.saturating_sub(first)),
        end_ns: clock.ns_of(one.span.end.saturating_sub(first)),
        bytes_per_s: one.done.bytes as f64 * 1e9 / ns as f64,
    }
}

fn complete(outcome: Outcome) -> Result<Value> {
    let done = outcome.done;
    outcome.answer.with(json!({
        "bytes": done.bytes,
        "blocks": done.blocks,
        "short_block": done.short_block,
        "ended": done.ended,
        "bytes_per_s": done.bytes as f64 * 1e9 / outcome.wall_ns.max(1) as f64,
        "start_pages": outcome.start.pages,
        "start_resident": outcome.start.resident,
        "streams": outcome.streams,
        "operations": outcome.operations,
    }))
}

// Request checks: fields that do not go together, or that neither dd nor hdparm support.

const LARGEST_BLOCK: usize = 1 << 30;
const LONGEST_S: f64 = 3600.0;
/// Limited because each stream keeps a block, and the data it writes, in memory.
const MOST_STREAMS: usize = 64;

pub fn check(common: &Common, own: &StreamJob) -> Result<()> {
    let bad = |what: String| Err(Error::bad(format!("request stream: {what}")));
    let reads = own.operation == Operation::Read;
    let writes = matches!(own.operation, Operation::Write | Operation::Rewrite);
    if !(1..=LARGEST_BLOCK).contains(&own.block_size) {
        return bad(format!(
            "block_size: expected 1 to {LARGEST_BLOCK} bytes, found {}",
            own.block_size
        ));
    }
    if common.replicates != 1 {
        return bad(format!(
            "replicates: a stream runs once, found {}",
            common.replicates
        ));
    }
    if !(1..=MOST_STREAMS).contains(&own.streams) {
        return bad(format!(
            "streams: expected 1 to {MOST_STREAMS}, found {}",
            own.streams
        ));
    }
    let of_a_set = common.set.is_some() || common.user.is_some();
    if own.device.is_some() && (!reads || of_a_set || own.streams != 1) {
        return bad(
            "device: only for reads by the probe itself, in one stream, without a file set"
                .to_string(),
        );
    }
    let placed = own.position != 0.0 || own.within.is_some() || own.lead_in != 0;
    if placed && own.device.is_none() {
        return bad("position, within, lead_in: only for a device".to_string());
    }
    if own.lead_in % own.block_size.max(1) as u64 != 0 {
        return bad(format!(
            "lead_in: expected a multiple of the block size ({} bytes), found {}",
            own.block_size, own.lead_in
        ));
    }
    let within = own.within.unwrap_or(1.0);
    if !((0.0..1.0).contains(&own.position) && within > 0.0 && within <= 1.0) {
        return bad(format!(
            "position, within: expected shares of the device from 0 to 1, found {} and {within}",
            own.position
        ));
    }
    if let Some(seconds) = own.seconds {
        if !(reads && seconds > 0.0 && seconds <= LONGEST_S) {
            return bad(format!(
                "seconds: only for reads, at most {LONGEST_S}, found {seconds}"
            ));
        }
    }
    if !(own.pause_s >= 0.0 && own.pause_s <= LONGEST_S) {
        return bad(format!(
            "pause_s: expected 0 to {LONGEST_S}, found {}",
            own.pause_s
        ));
    }
    let of_any_writing =
        own.flush != StreamFlush::None || own.sync != StreamSync::None || !own.truncate;
    if reads && of_any_writing {
        return bad("sync, flush, data, seed and truncate: only for writes".to_string());
    }
    if !writes && (own.data != Share::default() || own.seed.is_some()) {
        return bad("data and seed: only for writes of data that the probe generates".to_string());
    }
    if own.operation == Operation::Rewrite && !own.truncate {
        return bad("truncate: a rewrite does not change the size of the file".to_string());
    }
    if !reads && own.beside && own.data != Share::default() {
        return bad(
            "beside: needs data \"zeros\", because the reference copy reads /dev/zero".to_string(),
        );
    }
    let through_calls = own.copy_with == CopyWith::ReadWrite;
    if !through_calls && (own.operation != Operation::Copy || own.direct) {
        return bad(
            "copy_with: copy-file-range only for copies through the page cache".to_string(),
        );
    }
    Ok(())
}
