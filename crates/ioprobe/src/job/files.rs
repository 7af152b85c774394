//! The `files` job: prepares everything, has it timed, and holds what came of it against what had to.

use serde_json::{json, Value};

use super::expect::{bytes_to_write, is_symlink, Expected, Fate, Plan};
use super::timed::{Broken, Tally, Work};
use super::{require_root_for_user, stretch_ns, Usage, Watch};
use crate::clock::{monotonic_ns, Clock};
use crate::error::{Error, Result};
use crate::fileset::{FileSet, Registry};
use crate::identity::Borrowed;
use crate::isolate::Lifeline;
use crate::recorder::LatencyRecorder;
use crate::syscall::{c_text, stat};
use crate::wire::{Common, FilesJob, LinkKind, Operation};

/// What getdents and readlink write into: the size that the C library's readdir uses.
const NAMES_BYTES: usize = 32 * 1024;
const LARGEST_BUFFER: usize = 1 << 30;

pub fn run(
    (common, own): (Common, FilesJob),
    registry: &mut Registry,
    clock: &Clock,
    lifeline: &Lifeline,
) -> Result<Value> {
    let name = common.set.as_deref().ok_or_else(|| {
        Error::bad("request files: set: wanted the name of a file set, found none")
    })?;
    let set = registry.get(name)?;
    let view = common.view.as_deref();
    let files = set.select_in(view, &common.files)?;
    check_request(&own, files.len())?;
    let expected = Plan {
        set,
        view,
        files: &files,
        operations: &own.operations,
        buffer: own.buffer as u64,
        replicates: common.replicates,
    }
    .expected()?;
    let mut work = prepare(set, view, &files, &own, common.replicates, &expected)?;

    let mut watch = Watch::begin(&common.devices)?;
    let borrowed = match common.user {
        None => None,
        Some(user) => {
            require_root_for_user()?;
            Some(Borrowed::assume(user, lifeline)?)
        }
    };
    let before = Usage::of_this_thread();
    let started_ns = monotonic_ns();
    let outcome = work.perform(clock).map(|span| {
        let worked_ns = clock.ns_between(span.start, span.end);
        let base_ns = match own.stretch_of {
            None => worked_ns,
            Some(operation) => work.total_ns(operation),
        };
        let wanted_ns = stretch_ns(base_ns, common.stretch);
        let end = match wanted_ns {
            0 => span.end,
            ns => clock.spin_until(span.end, ns),
        };
        (
            clock.ns_between(span.start, end),
            clock.ns_between(span.end, end),
        )
    });
    let usage = Usage::of_this_thread().since(&before);
    drop(borrowed);
    watch.end()?;

    work.close_all();
    let (wall_ns, stretched_ns) = match outcome {
        Ok(times) => times,
        Err(broken) => {
            take_over(set, view, &expected.fates);
            return Err(say(&broken, &work));
        }
    };
    verify(set, view, &expected, &work.tally)?;
    let (devices, devices_after_sync) = watch.report(common.sync_after.as_deref())?;
    let tally = &work.tally;
    let mut answer = json!({
        "wall_ns": wall_ns,
        "user_ns": usage.user_ns,
        "sys_ns": usage.sys_ns,
        "usage": usage.to_json(),
        "devices": devices,
        "devices_after_sync": devices_after_sync,
        "stretched_ns": stretched_ns,
        "started_ns": started_ns,
        "verified": true,
        "bytes_read": tally.bytes_read,
        "bytes_written": tally.bytes_written,
        "entries": tally.entries,
    });
    answer["operations"] = work.latencies(&own, stretched_ns);
    Ok(answer)
}

fn check_request(own: &FilesJob, files: usize) -> Result<()> {
    if own.operations.is_empty() || files == 0 {
        return Err(Error::bad(format!(
            "request files: wanted at least one operation and one file, found {} and {files}",
            own.operations.len()
        )));
    }
    if !(1..=LARGEST_BUFFER).contains(&own.buffer) {
        return Err(Error::bad(format!(
            "request files: buffer: wanted 1 to {LARGEST_BUFFER} bytes, found {}",
            own.buffer
        )));
    }
    match own.stretch_of {
        Some(operation) if !own.operations.contains(&operation) => Err(Error::bad(format!(
            "request files: stretch_of: wanted one of the operations, found {}",
            operation.name()
        ))),
        _ => Ok(()),
    }
}

fn prepare(
    set: &FileSet,
    view: Option<&str>,
    files: &[u32],
    own: &FilesJob,
    replicates: u32,
    expected: &Expected,
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
    Ok(Work {
        operations: own
            .operations
            .iter()
            .map(|o| (*o, recorder_of(*o)))
            .collect(),
        order: own.order,
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
        create_mode: set.mode,
        buffer: touched(own.buffer),
        names: touched(NAMES_BYTES),
        recorders: kinds.iter().map(|_| LatencyRecorder::new()).collect(),
        tally: Tally::default(),
    })
}

/// Memory whose pages are there: a zeroed allocation alone would fault while the clock runs.
fn touched(size: usize) -> Vec<u8> {
    let mut memory = Vec::with_capacity(size);
    memory.resize(size, 0xa5);
    memory
}

impl Work {
    fn total_ns(&self, operation: Operation) -> u64 {
        (self.operations.iter())
            .find(|(o, _)| *o == operation)
            .map_or(0, |(_, recorder)| self.recorders[*recorder].total_ns())
    }

    fn latencies(self, own: &FilesJob, stretched_ns: u64) -> Value {
        let operations = &self.operations;
        (self.recorders.into_iter().enumerate())
            .filter_map(|(n, recorder)| {
                let operation = operations.iter().find(|(_, number)| *number == n)?.0;
                let extra = if own.stretch_of == Some(operation) {
                    stretched_ns
                } else {
                    0
                };
                let latency = recorder.finish(extra, own.histograms);
                Some((operation.name().to_string(), latency.to_json()))
            })
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

fn say(broken: &Broken, work: &Work) -> Error {
    let operation = work.operations[broken.operation].0;
    let items = match operation {
        Operation::Getdents => &work.folders,
        _ => &work.paths,
    };
    let path = items[broken.item].to_string_lossy();
    Error::errno(format!("{} {path}", operation.name()), broken.errno)
}

/// Counts against what was worked out, then names and sizes as the kernel shows them.
fn verify(set: &mut FileSet, view: Option<&str>, expected: &Expected, tally: &Tally) -> Result<()> {
    let paths = (expected.fates.iter())
        .map(|fate| set.path_through(view, fate.index))
        .collect::<Result<Vec<_>>>()?;
    let outcome = (|| {
        let mut wanted = vec![
            ("bytes read", expected.bytes_read, tally.bytes_read),
            ("bytes written", expected.bytes_written, tally.bytes_written),
            ("entries listed", expected.entries, tally.entries),
            ("bytes by stat", expected.stat_bytes, tally.stat_bytes),
        ];
        let (mut links, mut links_known) = (0, true);
        for (fate, path) in expected.fates.iter().zip(&paths) {
            match stat(path, false) {
                Err(Error::Os {
                    errno: libc::ENOENT,
                    ..
                }) if !fate.name_exists => {
                    links_known &= !is_symlink(fate.kind);
                    continue;
                }
                Ok(_) if !fate.name_exists => {
                    return Err(Error::verify(format!(
                        "unlink {path}: wanted no name, found one"
                    )))
                }
                Ok(name) if is_symlink(fate.kind) => links += name.st_size as u64,
                other => drop(other?),
            }
            let size = stat(path, true)?.st_size as u64;
            if size != fate.size {
                let size_wanted = fate.size;
                return Err(Error::verify(format!(
                    "work on {path}: wanted size {size_wanted} afterwards, found {size}"
                )));
            }
        }
        let per_name = expected.fates.len().max(1) as u64;
        if links_known {
            let lstats = expected.lstat_bytes + links * (expected.lstats / per_name);
            wanted.push(("bytes by lstat", lstats, tally.lstat_bytes));
            let readlinks = links * (expected.readlinks / per_name);
            wanted.push(("bytes by readlink", readlinks, tally.link_bytes));
        }
        match wanted.iter().find(|(_, wanted, found)| wanted != found) {
            Some((what, wanted, found)) => Err(Error::verify(format!(
                "work on files of {}: wanted {wanted} {what}, found {found}",
                set.dir
            ))),
            None => Ok(()),
        }
    })();
    take_over(set, view, &expected.fates);
    outcome
}

/// Brings the registry up to what the kernel shows, whether the job went as it should or broke off.
fn take_over(set: &mut FileSet, view: Option<&str>, fates: &[Fate]) {
    for fate in fates {
        let path = match set.path_through(view, fate.index) {
            Ok(path) => path,
            Err(_) => continue,
        };
        let found = stat(&path, true).ok();
        let is_file_itself = matches!(fate.kind, None | Some(LinkKind::Regular));
        let file = &mut set.files[fate.index as usize];
        match found {
            Some(status) => {
                file.size = status.st_size as u64;
                file.exists = true;
            }
            None if is_file_itself => file.exists = false,
            None => {}
        }
        if found.is_none() && view.is_some() && !is_file_itself {
            if let Some(known) = view.and_then(|name| set.views.get_mut(name)) {
                known.kinds.remove(&fate.index);
            }
        }
    }
}
