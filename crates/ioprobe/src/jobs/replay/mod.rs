//! The `replay` job: repeats the file operations of a recording (`crates/iotrace`) on files like
//! those that the application had.
//!
//! `replay_prepare` reads the trace, which stays in memory, and makes its files; the job runs it.
//! Files that a replay changes are made again by the next `replay_prepare`.

mod brief;
mod folders;
mod order;
mod plan;
#[cfg(test)]
mod tests;
mod tree;
mod work;

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use iotrace::Call;
use serde::Serialize;
use serde_json::{json, Value};

use self::plan::{bit, Facts, Plan, MOST_OPERATIONS};
use self::tree::{Done, Wanted};
use self::work::{Ended, Pace, Replay};
use super::stopwatch::{Span, Stopwatch};
use super::stretch::Stretch;
use super::usage::UsageScope;
use super::watch::Watch;
use super::{act_as, require_open_files};
use crate::clock::Clock;
use crate::content::{Content, Kind};
use crate::counters::devices::Counters;
use crate::error::{errno_text, Doing, Error, Result};
use crate::isolate::Lifeline;
use crate::protocol::{Common, ReplayJob, ReplayPrepare, Timing};
use crate::recorder::{Latency, LatencyRecorder};
use crate::sys::{open, ITSELF};

/// An operation that starts later than this has fallen behind the recording.
const BEHIND_NS: u64 = 10_000_000;
const LONGEST_S: f64 = 86_400.0;
const SPEEDS: std::ops::RangeInclusive<f64> = 1e-3..=1e3;

/// The traces in memory, and the folders with their files.
#[derive(Default)]
pub struct Replays {
    plans: BTreeMap<String, (Stamp, Arc<Plan>)>,
    trees: BTreeMap<String, Tree>,
}

/// What tells one version of a file from another: device, inode, size, and time of change.
type Stamp = [i64; 5];

struct Tree {
    trace: String,
    stamp: Stamp,
    wanted: Wanted,
    inode: Option<u64>,
    /// No replay has run since the files were made.
    clean: bool,
}

impl Replays {
    /// Make the files of a trace in a folder, or those again that a replay has changed.
    pub fn prepare(&mut self, request: &ReplayPrepare) -> Result<Value> {
        let (stamp, plan) = self.plan(&request.trace)?;
        let folder = request.folder.trim_end_matches('/');
        if !folder.starts_with('/') {
            return Err(Error::bad(format!(
                "request replay_prepare: folder: expected an absolute path, found {:?}",
                request.folder
            )));
        }
        let wanted = Wanted {
            fragments: request.fragments,
            owner: request.owner,
        };
        let known = self.trees.remove(folder).filter(|tree| {
            let same = (&tree.trace, tree.stamp, tree.wanted) == (&request.trace, stamp, wanted);
            same && tree.inode.is_some() && tree.inode == tree::inode(folder)
        });
        let done = match known {
            Some(tree) if tree.clean => Done::default(),
            Some(_) if !plan.moves_folders => match tree::reset(folder, &plan, wanted) {
                Err(error) if is_full(&error) => return Err(error),
                // Something is not as the trace says: all of it is made again.
                Err(_) => tree::make(folder, &plan, wanted)?,
                Ok(done) => done,
            },
            _ => tree::make(folder, &plan, wanted)?,
        };
        let tree = Tree {
            trace: request.trace.clone(),
            stamp,
            wanted,
            inode: tree::inode(folder),
            clean: true,
        };
        self.trees.insert(folder.to_string(), tree);
        Ok(json!({"trace": plan.facts, "files": done}))
    }

    /// Return the plan of a trace, read now if it is not in memory, and the version of its file.
    fn plan(&mut self, path: &str) -> Result<(Stamp, Arc<Plan>)> {
        let file = std::fs::File::from(open(path, libc::O_RDONLY | ITSELF, 0)?);
        let status = file.metadata().doing(|| format!("stat {path}"))?;
        if !status.is_file() {
            return Err(Error::bad(format!(
                "read the trace {path}: expected a regular file"
            )));
        }
        let stamp = [
            status.dev() as i64,
            status.ino() as i64,
            status.size() as i64,
            status.mtime(),
            status.mtime_nsec(),
        ];
        match self.plans.get(path) {
            Some((known, plan)) if *known == stamp => return Ok((stamp, plan.clone())),
            _ => drop(self.plans.remove(path)),
        }
        let plan = Arc::new(Plan::read(BufReader::new(file), path)?);
        let held: u64 = (self.plans.values())
            .map(|(_, plan)| plan.facts.operations)
            .sum();
        if held + plan.facts.operations > MOST_OPERATIONS as u64 {
            self.plans.clear(); // read again when needed
        }
        self.plans.insert(path.to_string(), (stamp, plan.clone()));
        Ok((stamp, plan))
    }
}

/// Read a trace as a replay does, and return what the replay needs. `name` is for messages.
pub fn facts(from: impl Read, name: &str) -> Result<impl Serialize> {
    Ok(Plan::read(from, name)?.facts)
}

fn is_full(error: &Error) -> bool {
    matches!(
        error,
        Error::Os {
            errno: libc::ENOSPC | libc::EDQUOT,
            ..
        }
    )
}

/// Check what can be checked of a request without its files.
pub fn check(common: &Common, own: &ReplayJob) -> Result<()> {
    let refuse = |text: String| Err(Error::bad(format!("request replay: {text}")));
    if common.set.is_some() || common.view.is_some() {
        return refuse("set: it has its own files".to_string());
    }
    if common.replicates != 1 {
        return refuse(format!(
            "replicates: expected 1, found {}",
            common.replicates
        ));
    }
    if !SPEEDS.contains(&own.speed) {
        return refuse(format!(
            "speed: expected {} to {}, found {}",
            SPEEDS.start(),
            SPEEDS.end(),
            own.speed
        ));
    }
    Ok(())
}

pub fn run(
    (common, own): (Common, ReplayJob),
    replays: &mut Replays,
    (clock, stretch): (&Clock, &mut Stretch),
    lifeline: &Lifeline,
) -> Result<Value> {
    check(&common, &own)?;
    let folder = own.folder.trim_end_matches('/');
    let trace = match replays.trees.get(folder) {
        Some(tree) if tree.clean => tree.trace.clone(),
        _ => {
            return Err(Error::bad(format!(
                "request replay: folder: the files in {folder} are not as before the recording; call replay_prepare"
            )))
        }
    };
    let (_, plan) = replays.plan(&trace)?;
    let lasts_s = plan.facts.duration_ns as f64 / 1e9 / own.speed;
    if own.timing != Timing::FlatOut && lasts_s > LONGEST_S {
        return Err(Error::bad(format!(
            "request replay: speed: the recording takes {lasts_s:.0} s at this speed, and a replay may take {LONGEST_S} s; use a higher speed or timing flat-out"
        )));
    }
    require_open_files(plan.most_open)?;
    let counters = Counters::open(&common.devices)?;
    let borrowed = act_as(common.user, lifeline)?;
    let root = tree::open(folder)?;
    let pace = Pace {
        timing: own.timing,
        speed: own.speed,
    };
    let content = Content {
        kind: Kind::Random,
        seed: 2,
    };
    if let Some(tree) = replays.trees.get_mut(folder) {
        tree.clean = false;
    }
    let replay = Replay::new(&plan, &root, clock, (pace, own.calls), |source| {
        content.fill(0, 0, source);
    })?;
    let mut watch = Watch::begin(counters, common.peer.as_deref())?;
    let outcome = replay.run(|| Stopwatch::start(UsageScope::ThisProcess));
    let timed = outcome.map(|(stopwatch, begin, ended)| {
        let last = ended.iter().map(|one| one.end).max();
        let span = Span {
            start: begin,
            end: last.unwrap_or(begin),
        };
        let timed = stopwatch.stop(&span, |whole| whole, (clock, stretch), &common);
        (timed, ended)
    });
    // The files are closed here, outside the measured time.
    drop(replay);
    drop(root);
    drop(borrowed);
    watch.end()?;
    let (timed, ended) = timed?;
    let answer = timed.answer(&watch, common.sync_after.as_deref())?;
    answer.with(describe(&plan, ended, &own, clock))
}

/// The part of the answer that only this job has.
#[derive(Serialize)]
struct Described<'a> {
    trace: &'a Facts,
    /// By call.
    operations: BTreeMap<&'static str, Latency>,
    all: Latency,
    /// How much later than recorded operations started; only with recorded start times.
    late: Option<Latency>,
    /// How many of them started later than `behind_ns`.
    behind: u64,
    behind_ns: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Operations with another result than recorded.
    differing: u64,
    differing_calls: BTreeMap<&'static str, u64>,
    first_differing: Option<String>,
    least_read_bytes: u64,
}

fn describe<'a>(
    plan: &'a Plan,
    ended: Vec<Ended>,
    own: &ReplayJob,
    clock: &Clock,
) -> Described<'a> {
    let mut by_call: BTreeMap<Call, LatencyRecorder> = BTreeMap::new();
    let (mut all, mut late) = (LatencyRecorder::new(), LatencyRecorder::new());
    let (mut behind, mut bytes_read, mut bytes_written) = (0, 0, 0);
    let mut differing = [0; Call::ALL.len()];
    let mut first_differing = None;
    for (thread, one) in plan.threads.iter().zip(&ended) {
        for (place, step) in thread.steps.iter().enumerate() {
            if step.is(bit::LEFT_OUT) || matches!(step.call, Call::Wait | Call::Start | Call::Exit)
            {
                continue;
            }
            let ticks = one.took[place].value();
            all.record(ticks);
            let recorder = by_call
                .entry(step.call)
                .or_insert_with(LatencyRecorder::new);
            recorder.record(ticks);
            if let Some(ticks) = one.late.get(place) {
                late.record(ticks.value());
                behind += u64::from(clock.ns_of(ticks.value()) > BEHIND_NS);
            }
        }
        bytes_read += one.bytes_read;
        bytes_written += one.bytes_written;
        for (sum, count) in differing.iter_mut().zip(one.differing) {
            *sum += count;
        }
        if let (None, Some((place, result))) = (&first_differing, one.first_differing) {
            first_differing = Some(plan.in_words(&thread.steps[place as usize], result));
        }
    }
    let finish = |recorder: LatencyRecorder| recorder.finish(clock, 0, own.histograms);
    Described {
        trace: &plan.facts,
        operations: (by_call.into_iter())
            .map(|(call, recorder)| (call.name(), finish(recorder)))
            .collect(),
        all: finish(all),
        late: (own.timing == Timing::Open).then(|| finish(late)),
        behind,
        behind_ns: BEHIND_NS,
        bytes_read,
        bytes_written,
        differing: differing.iter().sum(),
        differing_calls: (Call::ALL.into_iter().zip(differing))
            .filter(|(_, count)| *count > 0)
            .map(|(call, count)| (call.name(), count))
            .collect(),
        first_differing,
        least_read_bytes: plan.facts.least_read_bytes,
    }
}

impl Plan {
    /// Describe an operation with another result than recorded.
    fn in_words(&self, step: &plan::Step, result: i64) -> String {
        let shown = |result: i64| match result {
            0.. => result.to_string(),
            errno => errno_text(-errno as i32),
        };
        let file = match self.file_of(step) {
            Some(file) => format!(" {}", file.path.to_string_lossy()),
            None => String::new(),
        };
        format!(
            "{}{file} at {}: recorded {}, found {}",
            step.call.name(),
            step.offset,
            shown(step.result.into()),
            shown(result)
        )
    }
}

/// Read a trace for the fuzzers, and check that what was read can be replayed to its end.
#[cfg_attr(not(test), allow(dead_code))]
pub fn parse(bytes: &[u8]) {
    let _ = Plan::read(bytes, "fuzzed");
    // With checksums that match, so that what is behind them is reached.
    let mut bytes = bytes.to_vec();
    let mut start = iotrace::MAGIC.len() + 2;
    while let Some((head, rest)) = bytes
        .get_mut(start..)
        .and_then(|rest| rest.split_at_mut_checked(8))
    {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let length = length.min(rest.len());
        head[4..].copy_from_slice(&crc32fast::hash(&rest[..length]).to_le_bytes());
        start += 8 + length;
    }
    let Ok(plan) = Plan::read(&bytes[..], "fuzzed") else {
        return;
    };
    let mut done = vec![0; plan.threads.len()];
    let mut moved = true;
    while moved {
        moved = false;
        for (number, thread) in plan.threads.iter().enumerate() {
            while (done[number] as usize) < thread.steps.len() {
                let mut here = thread.waits.iter().filter(|wait| wait.at == done[number]);
                if here.any(|wait| done[usize::from(wait.thread)] < wait.count) {
                    break;
                }
                done[number] += 1;
                moved = true;
            }
        }
    }
    for (thread, done) in plan.threads.iter().zip(&done) {
        assert!(thread.steps.len() == *done as usize, "a deadlock");
    }
    for step in plan.threads.iter().flat_map(|thread| &thread.steps) {
        let _ = (plan.length(step), plan.target(step), step.vectors());
        let _ = plan.in_words(step, -1);
    }
}
