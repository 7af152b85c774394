//! The `atime` job: system calls, each done once to an object of its own, and what became of the object's access time.
//!
//! A table of facts and no timing. The objects are made in a folder beside the files of a set and brought into the state of the
//! set's first file, clean and out of the cache; then each call is done, and the kernel asked at once (lstat(2), which notes
//! nothing) whether the access time is another one, and whether the change waits in memory alone: an inode of which only times
//! are dirty stands on a list of its own (`b_dirty_time` of the device's write-back). Some ticks later each is done once
//! more. At the end one file is read over and over: its access time comes from a clock that ticks.

mod burst;
mod object;
mod perform;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{json, Value};

use self::object::Object;
use super::stopwatch::{Span, Stopwatch};
use super::stretch::Stretch;
use super::usage::Whose;
use super::watch::Watch;
use crate::clock::Clock;
use crate::counters;
use crate::counters::devices::Counters;
use crate::error::{Error, Result};
use crate::fileset::times::{set_times, state_of};
use crate::fileset::Registry;
use crate::protocol::{word, AtimeCall, AtimeJob, Common};
use crate::sys::files::syncfs;
use crate::sys::remove;
use crate::sys::{drop_pages, make_folder, open};

const MOST_BURST: u32 = 1_000_000;
/// So many ticks lie at the least between the two times that a call is done.
const TICKS: u64 = 3;
/// The file that is read over and over.
const OFTEN: &str = "often";

pub fn run(
    (common, own): (Common, AtimeJob),
    registry: &mut Registry,
    (clock, stretch): (&Clock, &mut Stretch),
) -> Result<Value> {
    check_request(&common, &own)?;
    let name = common.set.as_deref().ok_or_else(|| {
        Error::bad("request atime: set: wanted the file set beside whose files to work, found none")
    })?;
    let set = registry.get(name)?;
    let first = set
        .select_in(common.view.as_deref(), &common.files)?
        .first()
        .copied()
        .ok_or_else(|| Error::bad("request atime: wanted a file, found none"))?;
    let state = state_of(&set.path(first))?;
    let folder = Folder::make(&format!("{}/atime", set.dir))?;
    let write_back = (common.devices.first()).and_then(|device| counters::write_back_of(device));

    let mut objects = Vec::with_capacity(own.calls.len());
    for call in &own.calls {
        objects.push(Object::make(&folder.path, &word(call), *call)?);
    }
    let read_often = Object::make(&folder.path, OFTEN, AtimeCall::Pread)?;
    syncfs(&folder.path)?;
    for object in objects.iter().filter(|object| object.is_file()) {
        let file = open(&object.path, libc::O_RDONLY | libc::O_NOATIME, 0)?;
        drop_pages(&file, &object.path)?;
    }
    for object in &mut objects {
        object.prepare();
        set_times(&object.path, state)?;
    }
    set_times(&read_often.path, state)?;
    // What was set is on the disk, so that no inode is dirty for another reason than the call's.
    syncfs(&folder.path)?;
    let tick_ns = burst::tick_ns()?;
    // Within the tick of the last change relatime finds the access time no newer than it, and would note a second read too.
    let ticks = Duration::from_nanos(TICKS * tick_ns);
    std::thread::sleep(ticks);

    let mut facts: Vec<Fact> = Vec::with_capacity(objects.len());
    let mut watch = Watch::begin(Counters::open(&common.devices)?, common.peer.as_deref())?;
    let stopwatch = Stopwatch::start(Whose::ThisProcess);
    let start = clock.ticks();
    for object in &mut objects {
        let waiting = || counters::debugfs::read(&write_back).map(|found| found.inodes_by_time);
        let (before, waited) = (object.atime()?, waiting());
        let outcome = object.perform(0);
        let changed = object.atime()? != before;
        let lazily = waiting()
            .zip(waited)
            .map(|(now, then)| changed && now > then);
        facts.push(Fact {
            errno: outcome.err(),
            changed,
            lazily,
            again: None,
        });
    }
    std::thread::sleep(ticks);
    for (object, fact) in objects.iter_mut().zip(&mut facts) {
        if fact.errno.is_none() {
            let before = object.atime()?;
            fact.errno = object.perform(1).err();
            fact.again = Some(object.atime()? != before);
        }
    }
    let often = burst::read(&read_often, own.burst, tick_ns)?;
    let span = Span {
        start,
        end: clock.ticks(),
    };
    let timed = stopwatch.stop(&span, |whole| whole, (clock, stretch), &common);
    watch.end()?;

    let calls: BTreeMap<AtimeCall, Value> = (objects.iter().zip(&facts))
        .map(|(object, fact)| (object.call, fact.report()))
        .collect();
    drop(objects);
    drop(read_often);
    folder.remove()?;
    let answer = timed.answer(&watch, common.sync_after.as_deref())?;
    answer.with(json!({"state": state, "calls": calls, "burst": often}))
}

/// What can be said of a request without its files.
pub fn check_request(common: &Common, own: &AtimeJob) -> Result<()> {
    let refuse = |text: String| Err(Error::bad(format!("request atime: {text}")));
    let mut calls = own.calls.clone();
    calls.sort_unstable();
    calls.dedup();
    if calls.is_empty() || calls.len() != own.calls.len() {
        return refuse(format!(
            "calls: wanted each at most once and at least one, found {} and {} of them different",
            own.calls.len(),
            calls.len()
        ));
    }
    if !(1..=MOST_BURST).contains(&own.burst) {
        return refuse(format!(
            "burst: wanted 1 to {MOST_BURST} reads, found {}",
            own.burst
        ));
    }
    if common.replicates != 1 || common.user.is_some() {
        return refuse(
            "replicates and user: wanted none, for all is done once and only root may do all of it"
                .to_string(),
        );
    }
    Ok(())
}

/// What one call did to the access time of its object.
struct Fact {
    /// Why the kernel or the file system did not do it.
    errno: Option<i32>,
    changed: bool,
    /// None where nobody can tell.
    lazily: Option<bool>,
    again: Option<bool>,
}

impl Fact {
    fn report(&self) -> Value {
        match self.errno {
            Some(errno) => json!({ "errno": errno }),
            None => json!({
                "changed": self.changed,
                "lazily": self.lazily,
                "again": self.again,
            }),
        }
    }
}

/// The folder that holds the objects, gone with all of them whatever happens.
struct Folder {
    path: String,
    there: bool,
}

impl Folder {
    fn make(path: &str) -> Result<Self> {
        make_folder(path, 0o700)?;
        Ok(Folder {
            path: path.to_string(),
            there: true,
        })
    }

    fn remove(mut self) -> Result<()> {
        self.there = false;
        remove::tree(&self.path).map(|_| ())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.there {
            // An error is on its way already.
            let _ = remove::tree(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::job_fields;

    fn checked(text: Value) -> Result<()> {
        let given = match text {
            Value::Object(given) => given,
            other => panic!("{other}"),
        };
        let (common, own) = job_fields::<AtimeJob>("atime", given)?;
        check_request(&common, &own)
    }

    #[test]
    fn each_call_stands_there_at_most_once_and_nothing_is_repeated() {
        assert!(checked(json!({})).is_ok());
        assert!(checked(json!({"calls": ["read", "stat"], "burst": 1})).is_ok());
        for wrong in [
            json!({"calls": []}),
            json!({"calls": ["read", "read"]}),
            json!({"calls": ["reed"]}),
            json!({"burst": 0}),
            json!({"replicates": 2}),
        ] {
            assert!(checked(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
