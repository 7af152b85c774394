//! The `stream` job: sequential reading or writing of one file, or reading of the lab's device, as dd and hdparm do it.
//!
//! Everything that the originals leave to chance is done or told: pages that are cached at the start are dropped (unless the
//! start is to be as published), their number at the start is in the answer, data is known and read back.

mod data;
mod request;
mod source;
mod timed;
mod verify;

use std::os::unix::io::OwnedFd;
use std::thread::sleep;
use std::time::Duration;

use serde_json::{json, Value};

use self::data::{Data, Memory, Prepared};
pub use self::source::LabDevice;
use self::source::{Start, Target};
use self::timed::{Beside, Broken, Done, Ended, Reading, Recorders, Writing};
use super::act_as;
use super::stopwatch::{Span, Stopwatch};
use super::stretch::Stretch;
use super::usage::Whose;
use super::watch::Watch;
use crate::clock::Clock;
use crate::devices::Counters;
use crate::error::{Error, Result};
use crate::fileset::Registry;
use crate::isolate::Lifeline;
use crate::recorder::LatencyRecorder;
use crate::syscall::{open, stat};
use crate::target::files::sync;
use crate::wire::{Common, StreamFlush, StreamJob, StreamOperation};

/// What was done, and the answer as far as all jobs have it in common.
struct Outcome {
    done: Done,
    start: Start,
    wall_ns: u64,
    answer: Value,
}

pub fn run(
    (common, own): (Common, StreamJob),
    registry: &mut Registry,
    device: Option<LabDevice>,
    (clock, stretch): (&Clock, &mut Stretch),
    lifeline: &Lifeline,
) -> Result<Value> {
    request::check(&common, &own)?;
    let mut recorders = Recorders {
        block: LatencyRecorder::new(),
        flush: LatencyRecorder::new(),
        close: LatencyRecorder::new(),
    };
    let mut timer = Timer {
        common: &common,
        own: &own,
        clock,
        stretch,
        recorders: &mut recorders,
        lifeline,
    };
    let outcome = match device {
        Some(device) => timer.read_device(&device)?,
        None => {
            let name = common.set.as_deref().ok_or_else(|| {
                Error::bad("request stream: wanted a set or a device, found neither")
            })?;
            let set = registry.get(name)?;
            let target = Target::new(set, common.view.as_deref(), &common.files)?;
            match own.operation {
                StreamOperation::Read => timer.read_file(&target)?,
                StreamOperation::Write => timer.write_file(target)?,
            }
        }
    };
    Ok(complete(&own, outcome, recorders, clock))
}

/// What it takes to have a stream timed.
struct Timer<'a> {
    common: &'a Common,
    own: &'a StreamJob,
    clock: &'a Clock,
    stretch: &'a mut Stretch,
    recorders: &'a mut Recorders,
    lifeline: &'a Lifeline,
}

impl Timer<'_> {
    fn read_device(&mut self, device: &LabDevice) -> Result<Outcome> {
        let own = self.own;
        let block = own.block_size as u64;
        let opened = device.open(own.direct)?;
        let size = device.size(&opened)?;
        // Whole blocks only: hdparm never reads the rest of a device.
        let blocks = own.volume.map_or(size, |volume| volume.min(size)) / block;
        if blocks == 0 {
            return Err(Error::bad(format!(
                "request stream: wanted a block of {block} bytes in the device, found {size} bytes"
            )));
        }
        self.settle();
        if own.evict {
            device.evict()?;
        }
        let start = Start::of(&opened, blocks * block, "the lab's device")?;
        let beside = match own.beside {
            true => Beside::Touch,
            false => Beside::Nothing,
        };
        let limit_ticks = self.limit_ticks();
        let memory = Memory::zeroed(own.block_size);
        let mut kept = None;
        let mut outcome = self.timed(
            start,
            || Ok(opened),
            |from, clock, recorders| {
                let reading = Reading {
                    from,
                    block: own.block_size,
                    memory,
                    blocks: Some(blocks),
                    limit_ticks,
                    direct: own.direct,
                    close_inside: false,
                    beside,
                };
                let done = reading.perform(clock, recorders);
                let (span, done, open) = done.map_err(|broken| say(&broken, "the lab's device"))?;
                kept = open; // closed behind the counters
                Ok((span, done))
            },
        )?;
        drop(kept);
        if own.volume.is_none() && outcome.done.ended == Ended::Volume {
            outcome.done.ended = Ended::End;
        }
        verify::moved("the lab's device", &outcome.done, blocks * block)?;
        // hdparm leaves no page of the device behind it.
        device.evict()?;
        Ok(outcome)
    }

    fn read_file(&mut self, target: &Target) -> Result<Outcome> {
        let own = self.own;
        let size = target.set.files[target.index as usize].size;
        let block = own.block_size as u64;
        if let Some(volume) = own.volume {
            if volume > size || (volume % block != 0 && volume != size) {
                return Err(Error::bad(format!(
                    "request stream: volume: wanted whole blocks of {block} bytes, or all of the {size} of {}, found {volume}",
                    target.path
                )));
            }
        }
        let start = self.prepare(target)?;
        let beside = match own.beside {
            true => Beside::Other(open("/dev/null", libc::O_WRONLY, 0)?),
            false => Beside::Nothing,
        };
        let limit_ticks = self.limit_ticks();
        let memory = Memory::zeroed(own.block_size);
        let outcome = self.timed(
            start,
            || target.open(own),
            |from, clock, recorders| {
                let reading = Reading {
                    from,
                    block: own.block_size,
                    memory,
                    blocks: own.volume.map(|volume| (volume + block - 1) / block),
                    limit_ticks,
                    direct: own.direct,
                    close_inside: true,
                    beside,
                };
                let done = reading.perform(clock, recorders);
                let (span, done, _) = done.map_err(|broken| say(&broken, &target.path))?;
                Ok((span, done))
            },
        )?;
        verify::moved(&target.path, &outcome.done, own.volume.unwrap_or(size))?;
        Ok(outcome)
    }

    fn write_file(&mut self, target: Target) -> Result<Outcome> {
        let own = self.own;
        let before = target.set.files[target.index as usize].size;
        let volume = own.volume.unwrap_or(before);
        if volume == 0 {
            return Err(Error::bad(
                "request stream: volume: wanted at least 1 byte to write, found 0",
            ));
        }
        let seed = own.seed.unwrap_or(target.set.content.seed);
        let data = Data::new(own.data, seed, target.index);
        let prepared = Prepared::new(data, (own.block_size as u64).min(volume) as usize, volume);
        let start = self.prepare(&target)?;
        let beside = match own.beside {
            true => Beside::Other(open("/dev/zero", libc::O_RDONLY, 0)?),
            false => Beside::Nothing,
        };
        let done = self.timed(
            start,
            || target.open(own),
            |to, clock, recorders| {
                let writing = Writing {
                    to,
                    block: own.block_size,
                    prepared,
                    volume,
                    direct: own.direct,
                    flush: own.flush,
                    beside,
                };
                let done = writing.perform(clock, recorders);
                done.map_err(|broken| say(&broken, &target.path))
            },
        );
        // Whatever became of it, the registry follows what the kernel shows.
        let found = stat(&target.path, true);
        let state = &mut target.set.files[target.index as usize];
        state.exists = found.is_ok();
        if let Ok(found) = &found {
            state.size = found.st_size as u64;
        }
        let outcome = done?;
        verify::moved(&target.path, &outcome.done, volume)?;
        let size = match own.truncate {
            true => volume,
            false => volume.max(before),
        };
        verify::written(&target.file, &data, volume, size, own.direct)?;
        Ok(outcome)
    }

    fn prepare(&self, target: &Target) -> Result<Start> {
        self.settle();
        if self.own.evict {
            target.evict()?;
        }
        target.start()
    }

    /// hdparm's sync and pause.
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

    /// Opens and works under the user who was asked for; what is counted begins when it is open.
    fn timed(
        &mut self,
        start: Start,
        opened: impl FnOnce() -> Result<OwnedFd>,
        work: impl FnOnce(OwnedFd, &Clock, &mut Recorders) -> Result<(Span, Done)>,
    ) -> Result<Outcome> {
        let common = self.common;
        let clock = self.clock;
        let counters = Counters::open(&common.devices)?;
        let borrowed = act_as(common.user, self.lifeline)?;
        let opened = opened()?;
        let mut watch = Watch::begin(counters)?;
        let stopwatch = Stopwatch::start(Whose::ThisThread);
        let worked = work(opened, clock, self.recorders).map(|(span, done)| {
            let timed = stopwatch.stop(&span, |whole| whole, (clock, &mut *self.stretch), common);
            (timed, done)
        });
        drop(borrowed);
        watch.end()?;
        let (timed, done) = worked?;
        Ok(Outcome {
            done,
            start,
            wall_ns: timed.wall_ns,
            answer: timed.answer(&watch, common.sync_after.as_deref())?,
        })
    }
}

fn complete(own: &StreamJob, outcome: Outcome, recorders: Recorders, clock: &Clock) -> Value {
    let Outcome {
        done,
        start,
        wall_ns,
        mut answer,
    } = outcome;
    let mut operations = serde_json::Map::new();
    let flush = match own.flush {
        StreamFlush::Fdatasync => "fdatasync",
        _ => "fsync",
    };
    for (name, recorder) in [
        (own.operation.name(), recorders.block),
        (flush, recorders.flush),
        ("close", recorders.close),
    ] {
        let latency = recorder.finish(clock, 0, own.histograms);
        if latency.count > 0 {
            operations.insert(name.to_string(), latency.to_json());
        }
    }
    answer["bytes"] = json!(done.bytes);
    answer["blocks"] = json!(done.blocks);
    answer["short_block"] = json!(done.short_block);
    answer["ended"] = json!(done.ended.name());
    answer["bytes_per_s"] = json!(done.bytes as f64 * 1e9 / wall_ns.max(1) as f64);
    answer["start_pages"] = json!(start.pages);
    answer["start_resident"] = json!(start.resident);
    answer["operations"] = operations.into();
    answer
}

fn say(broken: &Broken, what: &str) -> Error {
    let doing = format!("{} {what} at offset {}", broken.call, broken.offset);
    match broken.errno {
        0 => Error::verify(format!("{doing}: moved {} bytes only", broken.moved)),
        errno => Error::errno(doing, errno),
    }
}
