//! The `random` job: reads or writes blocks of a set's files in random or sequential order.
//!
//! Files are opened, memory is allocated and rings are set up before the clock starts. What was
//! read and written is checked against the files' known content after it has stopped.

mod layout;
mod memory;
mod queued;
#[cfg(test)]
mod tests;
mod verify;
mod work;

use std::collections::BTreeMap;
use std::os::unix::io::{AsRawFd, OwnedFd};

use serde_json::{json, Value};

use self::layout::Layout;
use self::memory::Image;
use self::queued::Queue;
use self::work::{Broken, Outcome, Pace, Tally, Work};
use super::stopwatch::{Answer, Span, Stopwatch};
use super::stretch::Stretch;
use super::usage::UsageScope;
use super::watch::Watch;
use super::{act_as, require_open_files};
use crate::clock::Clock;
use crate::counters::devices::Counters;
use crate::error::{Error, Result};
use crate::fileset::{FileSet, Registry};
use crate::isolate::Lifeline;
use crate::jobs::region::Region;
use crate::protocol::{word, Common, Engine, RandomJob};
use crate::series::{Series, MOST_SECONDS};
use crate::sys::{c_text, try_open};
use crate::uring;

const LARGEST_BUFFERS: u64 = 1 << 30;
/// The size of a word: every read is checked by its first word.
const SMALLEST_BLOCK: u64 = 8;
const DEEPEST: u32 = 4096;
const USUAL_BATCH: u32 = 32;
const MOST_RAMP: u64 = 1 << 40;
const LONGEST_S: f64 = 86_400.0;

pub fn run(
    (common, own): (Common, RandomJob),
    registry: &mut Registry,
    (clock, stretch): (&Clock, &mut Stretch),
    lifeline: &Lifeline,
) -> Result<Value> {
    let name = common
        .set
        .as_deref()
        .ok_or_else(|| Error::bad("request random: set: expected the name of a file set"))?;
    let set = registry.get(name)?;
    check(&common, &own)?;
    let files = set.select_in(common.view.as_deref(), &common.files)?;
    if files.is_empty() {
        return Err(Error::bad("request random: expected at least one file"));
    }
    require_open_files(files.len())?;
    let layout = Layout::of(set, &files, &own)?;

    let counters = Counters::open(&common.devices)?;
    let borrowed = act_as(common.user, lifeline)?;
    let opened = open_all(set, common.view.as_deref(), &files, &own)?;
    let mut work = prepare(set, &files, &opened, layout, &own, common.replicates, clock)?;
    let mut ring = match own.engine {
        Engine::IoUring => Some(uring::set_up(own.depth)?),
        _ => None,
    };
    let shape = (own.depth, batch(&own), own.direct);
    let mut queue = (ring.as_mut())
        .map(|(ring, features)| Queue::new(ring, std::mem::take(features), &work, shape));
    if own.ramp > 0 {
        ramp(&mut work, queue.as_mut(), &own, clock)
            .map_err(|broken| say(&broken, set, &files, &work))?;
    }
    let mut watch = Watch::begin(counters, common.peer.as_deref())?;
    let stopwatch = Stopwatch::start(UsageScope::ThisProcess);
    let outcome = perform(&mut work, queue.as_mut(), clock);
    let timed = outcome.map(|span| stopwatch.stop(&span, |whole| whole, (clock, stretch), &common));
    drop(borrowed);
    watch.end()?;

    work.mappings.clear();
    let timed = timed.map_err(|broken| say(&broken, set, &files, &work))?;
    let answer = timed.answer(&watch, common.sync_after.as_deref())?;
    let in_memory = queue.as_ref().map(|queue| queue.last_reads().collect());
    verify::verify(set, &files, &opened, &work, in_memory)?;
    describe(answer, work, queue.as_ref(), &own, clock)
}

/// Ramp-up: run the first operations of the sequence before the clock starts, without recording
/// them. After a pause of some milliseconds the disk of a virtual machine responds more slowly for
/// a while. That is an effect of the pause and not of the work.
fn ramp(
    work: &mut Work,
    queue: Option<&mut Queue>,
    own: &RandomJob,
    clock: &Clock,
) -> std::result::Result<(), Broken> {
    let ramp_tally = Tally::new(own.write_share, false, Series::of(0, clock));
    let tally = std::mem::replace(&mut work.tally, ramp_tally);
    let pace = std::mem::replace(&mut work.pace, Pace::closed(own.ramp));
    perform(work, queue, clock)?;
    work.tally = tally;
    work.pace = pace;
    work.layout.pass_over(own.ramp);
    Ok(())
}

/// Run all operations of the work, by io_uring if there is a queue.
fn perform(
    work: &mut Work,
    queue: Option<&mut Queue>,
    clock: &Clock,
) -> std::result::Result<Span, Broken> {
    match queue {
        Some(queue) => queue.perform(work, clock),
        None => work.perform(clock),
    }
}

/// Check what can be checked of a request without its files.
pub fn check(common: &Common, own: &RandomJob) -> Result<()> {
    let refuse = |text: String| Err(Error::bad(format!("request random: {text}")));
    let queued = own.engine == Engine::IoUring;
    let in_memory = own.block.saturating_mul(u64::from(own.depth));
    if own.block < SMALLEST_BLOCK || in_memory > LARGEST_BUFFERS {
        return refuse(format!(
            "block: expected at least {SMALLEST_BLOCK} bytes, and at most {LARGEST_BUFFERS} bytes in flight (block times depth), found {}",
            own.block
        ));
    }
    if !(0.0..=1.0).contains(&own.write_share) {
        return refuse(format!(
            "write_share: expected 0 to 1, found {}",
            own.write_share
        ));
    }
    if own.direct && own.engine == Engine::Mmap {
        return refuse("direct: a mapping goes through the page cache".to_string());
    }
    if !(1..=DEEPEST).contains(&own.depth) || (own.depth > 1 && !queued) {
        return refuse(format!(
            "depth: expected 1 (up to {DEEPEST} with io_uring), found {} with {}",
            own.depth,
            word(own.engine)
        ));
    }
    if own
        .batch
        .is_some_and(|n| !queued || !(1..=own.depth).contains(&n))
    {
        return refuse(format!(
            "batch: expected 1 to depth, and io_uring, found {}",
            own.batch.unwrap_or(0)
        ));
    }
    match (own.operations, own.time_s) {
        (None, None) => return refuse("expected operations, time_s or both".into()),
        _ if own.ramp > MOST_RAMP => {
            return refuse(format!(
                "ramp: expected at most {MOST_RAMP}, found {}",
                own.ramp
            ))
        }
        (Some(0), _) => return refuse("operations: expected at least 1, found 0".into()),
        (None, _) if common.replicates > 1 => {
            return refuse(format!(
                "replicates: expected 1 without operations, found {}",
                common.replicates
            ))
        }
        _ => {}
    }
    let positive = |value: Option<f64>, most: f64| value.is_none_or(|v| v > 0.0 && v <= most);
    if !positive(own.time_s, LONGEST_S) {
        return refuse(format!(
            "time_s: expected more than 0 and at most {LONGEST_S}, found {}",
            own.time_s.unwrap_or(0.0)
        ));
    }
    // A period of more than a day or less than a nanosecond can only be a mistake.
    if !positive(own.rate, 1e9) || own.rate.is_some_and(|rate| rate < 1.0 / LONGEST_S) {
        return refuse(format!(
            "rate: expected {} to 1e9 operations per second, found {}",
            1.0 / LONGEST_S,
            own.rate.unwrap_or(0.0)
        ));
    }
    Ok(())
}

fn batch(own: &RandomJob) -> u32 {
    own.batch.unwrap_or_else(|| own.depth.min(USUAL_BATCH))
}

fn open_all(
    set: &FileSet,
    view: Option<&str>,
    files: &[u32],
    own: &RandomJob,
) -> Result<Vec<OwnedFd>> {
    let flags = view.map_or(libc::O_NOFOLLOW, |_| 0)
        | if own.write_share > 0.0 {
            libc::O_RDWR
        } else {
            libc::O_RDONLY
        }
        | if own.direct { libc::O_DIRECT } else { 0 };
    (files.iter())
        .map(|index| {
            let path = set.path_through(view, *index)?;
            let text = c_text(&path)?;
            match try_open(&text, flags | libc::O_NOATIME, 0) {
                Err(libc::EPERM) => try_open(&text, flags, 0), // a file that another user owns
                other => other,
            }
            .map_err(|errno| Error::errno(format!("open {path}"), errno))
        })
        .collect()
}

fn prepare(
    set: &FileSet,
    files: &[u32],
    opened: &[OwnedFd],
    layout: Layout,
    own: &RandomJob,
    replicates: u32,
    clock: &Clock,
) -> Result<Work> {
    let whole = |index: &u32| set.files[*index as usize].size / own.block * own.block;
    let lengths: Vec<(u32, u64)> = files.iter().map(|index| (*index, whole(index))).collect();
    let seconds = match own.time_s {
        _ if !own.series => 0,
        Some(limit) => limit.ceil() as usize + 1,
        None => MOST_SECONDS,
    };
    let mut work = Work {
        engine: own.engine,
        image: match layout.writes() {
            true => Some(Image::of(&set.content, &lengths, own.block)?),
            false => None,
        },
        layout,
        pace: Pace::of(own, replicates, clock),
        descriptors: opened.iter().map(AsRawFd::as_raw_fd).collect(),
        mappings: Vec::new(),
        buffers: Region::filled(own.block as usize * own.depth as usize)?,
        tally: Tally::new(
            own.write_share,
            own.rate.is_some(),
            Series::of(seconds, clock),
        ),
    };
    if own.engine == Engine::Mmap {
        for (descriptor, (index, length)) in work.descriptors.iter().zip(&lengths) {
            let (length, path) = (*length as usize, set.path(*index));
            let writable = work.layout.writes();
            (work.mappings).push(Region::of_file(*descriptor, length, writable, &path)?);
        }
    }
    Ok(work)
}

fn describe(
    answer: Answer,
    work: Work,
    queue: Option<&Queue>,
    own: &RandomJob,
    clock: &Clock,
) -> Result<Value> {
    let block = work.layout.block;
    let tally = work.tally;
    let late = tally.late.finish(clock, 0, own.histograms);
    let reads = tally.reads.finish(clock, 0, own.histograms);
    let writes = tally.writes.finish(clock, 0, own.histograms);
    let operations: BTreeMap<_, _> = [("read", &reads), ("write", &writes)]
        .into_iter()
        .filter(|(_, latency)| latency.count > 0)
        .collect();
    let engine = json!({
        "name": own.engine,
        "features": queue.map_or_else(Vec::new, |queue| queue.features.clone()),
        "batch": queue.map(|_| batch(own)),
        "calls": tally.calls,
    });
    answer.with(json!({
        "engine": engine,
        "bytes_read": reads.count * block,
        "bytes_written": writes.count * block,
        "late": own.rate.map(|_| late),
        "series": own.series.then(|| tally.series.seconds(clock)),
        "operations": operations,
    }))
}

fn say(broken: &Broken, set: &FileSet, files: &[u32], work: &Work) -> Error {
    let doing = match &broken.place {
        None => "io_uring_enter".to_string(),
        Some(place) => format!(
            "{} {} bytes at {} of {}",
            if place.write { "write" } else { "read" },
            work.layout.block,
            place.offset,
            set.path(files[place.file as usize])
        ),
    };
    match broken.outcome {
        Outcome::Errno(errno) => Error::errno(doing, errno),
        Outcome::Short(n) => Error::verify(format!("{doing}: found {n} bytes")),
    }
}
