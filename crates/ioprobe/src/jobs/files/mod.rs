//! The `files` job: prepares everything, runs the timed part and checks the outcome against what
//! was expected.

mod acknowledge;
mod expect;
mod outcome;
mod timed;

use std::collections::BTreeMap;
use std::os::unix::io::{AsRawFd, RawFd};

use serde_json::{json, Value};

use self::acknowledge::Acknowledger;
use self::expect::{bytes_to_write, phases, Expected, Plan};
use self::outcome::{changes_names_or_sizes, take_over, verify};
use self::timed::{Broken, Tally, Work};
use super::stopwatch::Stopwatch;
use super::stretch::Stretch;
use super::usage::UsageScope;
use super::watch::Watch;
use super::{act_as, require_open_files};
use crate::clock::Clock;
use crate::counters::devices::Counters;
use crate::error::{Error, Result};
use crate::fileset::{FileSet, Registry};
use crate::isolate::Lifeline;
use crate::protocol::{word, Common, FilesJob, Operation, Order, StretchClock};
use crate::recorder::{Latency, LatencyRecorder};
use crate::sys::{c_text, open};

/// Buffer size for getdents and readlink: the size that the C library's readdir uses.
const NAMES_BYTES: usize = 32 * 1024;
const LARGEST_BUFFER: usize = 1 << 30;
/// Limit, in bytes, on the data to write. It is generated before the clock starts and kept in
/// memory.
const MOST_TO_WRITE: u64 = 1 << 30;

pub fn run(
    (common, own): (Common, FilesJob),
    registry: &mut Registry,
    (clock, stretch): (&Clock, &mut Stretch),
    lifeline: &Lifeline,
) -> Result<Value> {
    let name = common
        .set
        .as_deref()
        .ok_or_else(|| Error::bad("request files: set: expected the name of a file set"))?;
    let set = registry.get(name)?;
    let view = common.view.as_deref();
    let files = set.select_in(view, &common.files)?;
    check_request(&own, common.stretch_clock, files.len())?;
    let one_at_a_time = own.order != Order::Operation && own.operations.contains(&Operation::Close);
    if !one_at_a_time {
        require_open_files(files.len())?;
    }
    check_volume(set, &own, &files)?;
    let expected = Plan {
        set,
        view,
        files: &files,
        operations: &own.operations,
        order: own.order,
        buffer: own.buffer as u64,
        replicates: common.replicates,
    }
    .expected()?;
    let sink = open("/dev/null", libc::O_WRONLY, 0)?;
    let mut work = prepare(
        (set, view),
        &files,
        &own,
        common.replicates,
        &expected,
        sink.as_raw_fd(),
    )?;

    let mut acknowledger = match &own.acknowledge {
        None => None,
        Some(marks) => Some(Acknowledger::connect(marks, set.content, &files)?),
    };
    let counters = Counters::open(&common.devices)?;
    let borrowed = act_as(common.user, lifeline)?;
    let mut watch = Watch::begin(counters, common.peer.as_deref())?;
    let stopwatch = Stopwatch::start(UsageScope::ThisThread);
    let performed = match &mut acknowledger {
        None => work.perform(clock),
        Some(acknowledger) => work.perform_acknowledging(clock, acknowledger),
    };
    let outcome = performed.map(|span| {
        let part = |whole| work.ticks_of(own.stretch_of, whole);
        stopwatch.stop(&span, part, (clock, stretch), &common)
    });
    drop(borrowed);
    watch.end()?;

    work.close_all();
    let timed = match outcome {
        Ok(timed) => timed,
        Err(broken) => {
            take_over(set, view, &expected.fates);
            return Err(say(&broken, &work));
        }
    };
    let look = own.operations.iter().any(|o| changes_names_or_sizes(*o))
        || expected.lstats + expected.readlinks > 0;
    verify(set, view, &expected, &work.tally, look)?;
    let answer = timed.answer(&watch, common.sync_after.as_deref())?;
    answer.with(json!({
        "bytes_read": work.tally.bytes_read,
        "bytes_written": work.tally.bytes_written,
        "entries": work.tally.entries,
        "acknowledged": acknowledger.map(Acknowledger::collected),
        "operations": work.latencies(&own, clock, timed.spun.own_ns),
    }))
}

/// Check that the data of `write-all` fits into memory.
fn check_volume(set: &FileSet, own: &FilesJob, files: &[u32]) -> Result<()> {
    if !own.operations.contains(&Operation::WriteAll) {
        return Ok(());
    }
    let bytes: u64 = files.iter().map(|n| set.files[*n as usize].whole).sum();
    if bytes > MOST_TO_WRITE {
        return Err(Error::bad(format!(
            "request files: write-all: expected at most {MOST_TO_WRITE} bytes in total, found {bytes}"
        )));
    }
    Ok(())
}

fn check_request(own: &FilesJob, by: StretchClock, files: usize) -> Result<()> {
    if own.operations.is_empty() || files == 0 {
        return Err(Error::bad(format!(
            "request files: expected at least one operation and one file, found {} and {files}",
            own.operations.len()
        )));
    }
    if !(1..=LARGEST_BUFFER).contains(&own.buffer) {
        return Err(Error::bad(format!(
            "request files: buffer: expected 1 to {LARGEST_BUFFER} bytes, found {}",
            own.buffer
        )));
    }
    match own.stretch_of {
        Some(_) if by == StretchClock::Cpu => Err(Error::bad(
            "request files: stretch_of: not with CPU time, which is not measured per operation",
        )),
        Some(operation) if !own.operations.contains(&operation) => Err(Error::bad(format!(
            "request files: stretch_of: expected one of the operations, found {}",
            word(operation)
        ))),
        _ => Ok(()),
    }
}

fn prepare(
    (set, view): (&FileSet, Option<&str>),
    files: &[u32],
    own: &FilesJob,
    replicates: u32,
    expected: &Expected,
    sink: RawFd,
) -> Result<Work> {
    let mut kinds = own.operations.clone();
    kinds.sort_unstable();
    kinds.dedup();
    let recorder_of = |operation| {
        kinds
            .iter()
            .position(|kind| *kind == operation)
            .unwrap_or(0)
    };
    let writes = own.operations.contains(&Operation::WriteAll);
    Ok(Work {
        operations: own
            .operations
            .iter()
            .map(|o| (*o, recorder_of(*o)))
            .collect(),
        phases: phases(own.order, &own.operations),
        replicates,
        paths: files
            .iter()
            .map(|index| c_text(&set.path_through(view, *index)?))
            .collect::<Result<_>>()?,
        folders: expected
            .folders
            .iter()
            .map(|f| c_text(f))
            .collect::<Result<_>>()?,
        descriptors: vec![-1; files.len()],
        bytes: bytes_to_write(&own.operations, files, &set.content),
        whole: files
            .iter()
            .map(|index| {
                let file = &set.files[*index as usize];
                let mut content = vec![0; if writes { file.whole as usize } else { 0 }];
                set.content.fill(*index, 0, &mut content);
                content
            })
            .collect(),
        sink,
        create_mode: set.mode,
        itself: view.map_or(libc::O_NOFOLLOW, |_| 0),
        buffer: touched(own.buffer),
        names: touched(NAMES_BYTES),
        recorders: kinds.iter().map(|_| LatencyRecorder::new()).collect(),
        tally: Tally::default(),
    })
}

/// Return memory with all pages faulted in. A zeroed allocation would fault while the
/// clock runs.
fn touched(size: usize) -> Vec<u8> {
    let mut memory = Vec::with_capacity(size);
    memory.resize(size, 0xa5);
    memory
}

impl Work {
    /// Return the total ticks of one operation, or of the whole work (None).
    fn ticks_of(&self, operation: Option<Operation>, whole: u64) -> u64 {
        match operation {
            None => whole,
            Some(operation) => (self.operations.iter())
                .find(|(o, _)| *o == operation)
                .map_or(0, |(_, recorder)| self.recorders[*recorder].total_ticks()),
        }
    }

    fn latencies(
        self,
        own: &FilesJob,
        clock: &Clock,
        stretched_ns: u64,
    ) -> BTreeMap<String, Latency> {
        let operations = self.operations;
        (self.recorders.into_iter().enumerate())
            .filter_map(|(n, recorder)| {
                let operation = operations.iter().find(|(_, number)| *number == n)?.0;
                let extra = if own.stretch_of == Some(operation) {
                    stretched_ns
                } else {
                    0
                };
                let latency = recorder.finish(clock, extra, own.histograms);
                Some((word(operation), latency))
            })
            .collect()
    }
}

fn say(broken: &Broken, work: &Work) -> Error {
    let operation = work.operations[broken.operation].0;
    let items = match operation {
        Operation::Getdents => &work.folders,
        _ => &work.paths,
    };
    let path = items[broken.item].to_string_lossy();
    Error::errno(format!("{} {path}", word(operation)), broken.errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocations;
    use crate::fileset::create::make;
    use crate::protocol::{fields, job_fields};

    #[test]
    fn the_timed_part_asks_for_no_memory() {
        let dir = format!("/var/tmp/ioprobe-test-{}-files", std::process::id());
        let object = |value: Value| value.as_object().unwrap().clone();
        let mut sets = Registry::default();
        let set =
            json!({"set": "s", "dir": dir, "count": 50, "size": 100, "seed": 1, "content": "text"});
        make(fields("fileset", object(set)).unwrap(), &mut sets).unwrap();
        let request = json!({
            "set": "s",
            "operations": ["getdents", "stat", "lstat", "open", "read-to-end", "close", "open-write", "write-byte", "fsync", "close", "open-truncate", "write-all", "fstat", "close"],
        });
        let (_, own): (Common, FilesJob) = job_fields("files", object(request)).unwrap();
        let set = sets.get("s").unwrap();
        let files: Vec<u32> = (0..50).collect();
        let expected = Plan {
            set,
            view: None,
            files: &files,
            operations: &own.operations,
            order: own.order,
            buffer: own.buffer as u64,
            replicates: 3,
        }
        .expected()
        .unwrap();
        let mut work = prepare((set, None), &files, &own, 3, &expected, -1).unwrap();
        let clock = Clock::best();
        let (count, done) = allocations::during(|| work.perform(&clock).is_ok());
        std::fs::remove_dir_all(dir).unwrap();
        assert_eq!((count, done), (0, true));
    }
}
