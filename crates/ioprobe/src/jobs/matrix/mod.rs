//! The `matrix` job: one cell of iozone's matrix (a file size and a record size) under thirteen
//! tests.
//!
//! Written from the published description of iozone's tests and options, not from its source. Each
//! test opens the file itself. Timed are its records and, only if requested, the fsync and the
//! close. Set-up and verification of a test are untimed. The injected slowdown of the positive
//! control comes after all tests: spinning between them would let write-back proceed that a later
//! test would otherwise wait for.

mod cell;
mod order;
mod pattern;
mod stdio;
mod subject;
mod timed;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{json, Value};

use self::cell::Cell;
use self::pattern::STAMP;
use super::stopwatch::Timed;
use super::stretch::{Spun, Stretch};
use super::usage::Usage;
use super::watch::Watch;
use crate::clock::{monotonic_ns, Clock};
use crate::counters::devices::Counters;
use crate::error::{Error, Result};
use crate::fileset::Registry;
use crate::protocol::{word, Common, MatrixJob, MatrixTest};
use crate::recorder::{Latency, LatencyRecorder};

pub fn run(
    (common, own): (Common, MatrixJob),
    registry: &mut Registry,
    (clock, stretch): (&Clock, &mut Stretch),
) -> Result<Value> {
    let records = check_request(&common, &own)?;
    let name = common.set.as_deref().ok_or_else(|| {
        Error::bad("request matrix: set: expected the name of a file set to work in")
    })?;
    let set = registry.get(name)?;
    let mut tests = own.tests.clone();
    tests.sort_unstable();
    let mut cell = Cell::new(set, records, clock, &own)?;
    let mut done: Vec<Done> = tests.iter().map(|test| Done::new(*test, &own)).collect();
    if !makes_the_file(tests[0]) {
        cell.prepare(0)?;
    }

    let mut watch = Watch::begin(Counters::open(&common.devices)?, common.peer.as_deref())?;
    let started_ns = monotonic_ns();
    for replicate in 0..common.replicates {
        if replicate > 0 {
            cell.begin_again(tests[0], replicate)?;
        }
        for one in &mut done {
            cell.perform(one, replicate)?;
        }
    }
    watch.end()?;

    cell.finish()?;
    for one in &mut done {
        if own.stretch_of.is_none_or(|test| test == one.test) {
            let cpu_ns = one.usage.cpu_ns;
            one.spun = stretch.after(one.ticks, cpu_ns, common.stretch, common.stretch_clock);
        }
    }
    let mut usage = Usage::default();
    let mut spun = Spun::default();
    for one in &done {
        usage.add(&one.usage);
        spun.add(&one.spun);
    }
    let timed = Timed {
        wall_ns: done.iter().map(|one| one.wall_ns(clock)).sum(),
        cpu_ns: usage.cpu_ns + spun.cpu_ns,
        usage: usage.with_spin(&spun),
        spun,
        started_ns,
    };
    let tests: BTreeMap<String, Report> = (done.into_iter())
        .map(|one| (word(one.test), one.report(clock, &own)))
        .collect();
    let answer = timed.answer(&watch, common.sync_after.as_deref())?;
    answer.with(json!({"records": records, "tests": tests}))
}

/// One test, as reported in the answer.
#[derive(Serialize)]
struct Report {
    wall_ns: u64,
    cpu_ns: u64,
    user_ns: u64,
    sys_ns: u64,
    bytes: u64,
    records: u64,
    kib_per_s: f64,
    spun: Spun,
    latency: Option<Latency>,
}

/// The results of one test, over all replicates.
struct Done {
    test: MatrixTest,
    ticks: u64,
    usage: Usage,
    bytes: u64,
    recorder: Option<LatencyRecorder>,
    spun: Spun,
}

impl Done {
    fn new(test: MatrixTest, own: &MatrixJob) -> Self {
        Done {
            test,
            ticks: 0,
            usage: Usage::default(),
            bytes: 0,
            recorder: own.histograms.then(LatencyRecorder::new),
            spun: Spun::default(),
        }
    }

    fn wall_ns(&self, clock: &Clock) -> u64 {
        clock.ns_of(self.ticks) + self.spun.wall_ns
    }

    fn report(self, clock: &Clock, own: &MatrixJob) -> Report {
        let wall_ns = self.wall_ns(clock);
        let usage = self.usage.with_spin(&self.spun);
        Report {
            wall_ns,
            cpu_ns: usage.cpu_ns,
            user_ns: usage.user_ns,
            sys_ns: usage.sys_ns,
            bytes: self.bytes,
            records: self.bytes / own.record_size as u64,
            kib_per_s: self.bytes as f64 / 1024.0 / (wall_ns.max(1) as f64 / 1e9),
            spun: self.spun,
            latency: self.recorder.map(|r| r.finish(clock, 0, true)),
        }
    }
}

// Limits of a request, and properties of the tests.

const LARGEST_RECORD: usize = 1 << 30;
const MOST_RECORDS: u64 = 1 << 26;
/// Record sizes for direct I/O must be a multiple of this: the kernel requires whole logical
/// blocks.
const BLOCK: usize = 512;

/// Check a request. Returns the number of records.
pub fn check_request(common: &Common, own: &MatrixJob) -> Result<u32> {
    let wanted = |fits: bool, field: &str, wanted: &str, found: String| {
        if fits {
            return Ok(());
        }
        Err(Error::bad(format!(
            "request matrix: {field}: expected {wanted}, found {found}"
        )))
    };
    let (file, record) = (own.file_size, own.record_size);
    let strange = common.files.is_some() || common.view.is_some() || common.user.is_some();
    wanted(
        !strange,
        "files, view, user",
        "none (the job makes its own file)",
        "one of them".to_string(),
    )?;
    let mut seen = own.tests.clone();
    seen.sort_unstable();
    seen.dedup();
    wanted(
        !seen.is_empty() && seen.len() == own.tests.len(),
        "tests",
        "at least one, each once",
        format!("{:?}", own.tests.iter().map(word).collect::<Vec<_>>()),
    )?;
    wanted(
        (STAMP..=LARGEST_RECORD).contains(&record),
        "record_size",
        &format!("{STAMP} to {LARGEST_RECORD} bytes"),
        record.to_string(),
    )?;
    wanted(
        file >= record as u64 && file % record as u64 == 0,
        "file_size",
        &format!("a multiple of the record size {record}"),
        file.to_string(),
    )?;
    let records = file / record as u64;
    wanted(
        records <= MOST_RECORDS,
        "file_size",
        &format!("at most {MOST_RECORDS} records"),
        records.to_string(),
    )?;
    wanted(
        !own.direct || record % BLOCK == 0,
        "record_size",
        &format!("a multiple of {BLOCK} with direct"),
        record.to_string(),
    )?;
    wanted(own.stride > 0, "stride", "at least 1", "0".to_string())?;
    match own.stretch_of {
        Some(test) if !own.tests.contains(&test) => Err(Error::bad(format!(
            "request matrix: stretch_of: expected one of the tests, found {}",
            word(test)
        ))),
        _ => Ok(records as u32),
    }
}

pub fn makes_the_file(test: MatrixTest) -> bool {
    matches!(test, MatrixTest::Write | MatrixTest::Fwrite)
}

pub fn writes(test: MatrixTest) -> bool {
    use MatrixTest::{Frewrite, Fwrite, RandomWrite, RecordRewrite, Rewrite, Write};
    matches!(
        test,
        Write | Rewrite | RandomWrite | RecordRewrite | Fwrite | Frewrite
    )
}

pub fn is_stdio(test: MatrixTest) -> bool {
    test >= MatrixTest::Fwrite
}

/// Return whether the test reads a file that no test has just read.
pub fn starts_cold(test: MatrixTest) -> bool {
    !writes(test) && !matches!(test, MatrixTest::Reread | MatrixTest::Freread)
}

/// Return whether the test starts, untimed, by reading one record and seeking back.
pub fn reads_one_before(test: MatrixTest) -> bool {
    matches!(test, MatrixTest::Read | MatrixTest::Reread)
}
