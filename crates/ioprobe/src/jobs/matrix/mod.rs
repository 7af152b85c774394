//! The `matrix` job: one cell of iozone's matrix, a file size and a record size, under thirteen tests.
//!
//! Made from the published description of iozone's tests and options, not from its source. Each test opens the file itself; what
//! it is timed for is its records, and only where asked for the fsync and the close. What a test needs is laid out before it,
//! what it did is looked at after it, and all of that is untimed. The stretch of the positive control comes after all tests, so
//! that no write-back goes on behind it that a later test would have waited for.

mod cell;
mod order;
mod pattern;
pub mod request;
mod stdio;
mod subject;
mod timed;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{json, Value};

use self::cell::Cell;
use self::request::{check_request, makes_the_file};
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
        Error::bad("request matrix: set: wanted the file set in whose folder to work, found none")
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

/// What is answered of one test.
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

/// What came of one test, over all replicates.
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
