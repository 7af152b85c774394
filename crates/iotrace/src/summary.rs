//! What an application did, from its trace: counts, bytes, sizes, times, order, mix over time,
//! concurrency, syncs, hot files and errors.
//!
//! One pass over the records in bounded memory: all tables have a fixed size or a limit stated with
//! them, whatever the length of the trace. Where a limit is reached, the result says so
//! (`limits`).

mod depth;
mod files;
mod spread;
mod timeline;

use std::collections::HashMap;
use std::io::Read;

use serde::Serialize;

use crate::{Call, Header, Op, Reader, Record, Result, ThreadRecord, MAX_THREADS};
use depth::{Depth, Depths};
use files::{FileTotals, Files};
use spread::{Quantiles, Spread};
use timeline::{Timeline, TimelineReport};

/// The number of handles up to which positions are remembered. Beyond it all positions are forgotten, and the
/// next access of each handle counts as its first.
const MOST_HANDLES: usize = 1 << 16;
/// Different sizes counted one by one, for each direction; further ones count in their power of two only.
const MOST_SIZES: usize = 512;
/// Sizes that are reported one by one.
const COMMON_SIZES: usize = 24;
/// Different pairs of call and error number; further ones count as error 0.
const MOST_ERRORS: usize = 512;
const SHOWN_ERRORS: usize = 20;
/// Flags of an open, as on x86-64. `O_SYNC` includes `O_DSYNC`.
const O_CREAT: u32 = 0o100;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DSYNC: u32 = 0o10000;
const O_DIRECT: u32 = 0o40000;

/// What a call is for. Every call belongs to exactly one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Purpose {
    Read,
    Write,
    Sync,
    Metadata,
    /// Threads starting, ending and waiting for each other.
    Threads,
}

/// Return what a call is for. A copy counts as a read of its source, and its destination's bytes as written.
pub fn purpose(call: Call) -> Purpose {
    match call {
        Call::Read | Call::Send | Call::Fault | Call::Copy => Purpose::Read,
        Call::Write => Purpose::Write,
        Call::Fsync | Call::Fdatasync | Call::SyncFileRange | Call::Sync => Purpose::Sync,
        Call::Wait | Call::Start | Call::Exit => Purpose::Threads,
        _ => Purpose::Metadata,
    }
}

#[derive(Debug, Serialize)]
pub struct Summary {
    pub recorded_at: String,
    pub kernel: String,
    pub command: Vec<String>,
    pub under: String,
    pub names_hashed: bool,
    /// The trace has its end: nothing was cut off.
    pub complete: bool,
    pub duration_ns: u64,
    pub operations: u64,
    pub lost: u64,
    pub elsewhere: u64,
    pub uring: u64,
    pub calls: Vec<CallTotals>,
    pub read: Direction,
    pub write: Direction,
    pub syncs: Syncs,
    pub mapping: Mapping,
    pub opens: Opens,
    pub concurrency: Concurrency,
    pub timeline: TimelineReport,
    pub files: FileTotals,
    pub errors: Vec<Failure>,
    /// Limits of this summary that were reached, in words.
    pub limits: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct CallTotals {
    pub call: &'static str,
    pub purpose: &'static str,
    pub operations: u64,
    pub errors: u64,
    /// Moved by the calls that succeeded.
    pub bytes: u64,
    /// Of the calls that moved data; null if none did.
    pub size: Option<Quantiles>,
    pub time_ns: Quantiles,
}

/// Reads (read and sendfile, not page faults and copies) or writes of files.
#[derive(Debug, Serialize)]
pub struct Direction {
    pub operations: u64,
    pub bytes: u64,
    /// An access is sequential if it begins where the one before of the same direction on the same
    /// open file ended. `first` had none before it.
    pub sequential: u64,
    pub random: u64,
    pub first: u64,
    pub sequential_bytes: u64,
    pub random_bytes: u64,
    /// On files opened with O_DIRECT.
    pub direct: u64,
    pub positional: u64,
    pub vectored: u64,
    /// By power of two: sizes above the half of `up_to`, and at most it.
    pub sizes: Vec<SizeTotals>,
    /// The most frequent sizes, one by one.
    pub common: Vec<SizeTotals>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct SizeTotals {
    pub up_to: u64,
    pub operations: u64,
    pub bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct Syncs {
    pub operations: u64,
    /// Writes, and their bytes, since the sync before, over all files; null without a sync.
    pub writes_between: Option<Quantiles>,
    pub bytes_between: Option<Quantiles>,
    pub time_share: f64,
    /// Files that were synced at least once.
    pub files: u64,
    /// Writes on files opened with O_SYNC or O_DSYNC: each is also a sync.
    pub synchronous_writes: u64,
}

#[derive(Debug, Serialize)]
pub struct Mapping {
    pub maps: u64,
    pub mapped_bytes: u64,
    pub faults: u64,
    pub fault_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct Opens {
    pub operations: u64,
    pub failed: u64,
    pub direct: u64,
    pub synchronous: u64,
    pub append: u64,
    pub create: u64,
    pub truncate: u64,
}

/// Reads, writes and syncs in flight: begun and not yet ended.
#[derive(Debug, Serialize)]
pub struct Concurrency {
    pub threads: u64,
    pub processes: u64,
    /// Threads that read, wrote or synced.
    pub threads_with_io: u64,
    pub busy_ns: u64,
    /// Mean number in flight, over the whole time and while at least one was.
    pub mean: f64,
    pub mean_while_busy: f64,
    pub peak: u64,
    pub depths: Vec<Depth>,
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Failure {
    pub call: &'static str,
    pub errno: u32,
    pub operations: u64,
}

/// Summarise a trace. A trace that was cut off is summarised up to there (`complete` is false).
/// Errors: not a trace, or damaged.
pub fn summarise<R: Read>(input: R) -> Result<Summary> {
    let (header, reader) = Reader::new(input)?;
    let mut all = Totals::new();
    let mut end = None;
    for record in reader {
        match record {
            Ok(Record::File(file)) => all.files.add(&file),
            Ok(Record::Thread(thread)) => all.thread(&thread),
            Ok(Record::Op(op)) => all.operation(&op),
            Ok(Record::End(found)) => end = Some(found),
            Err(error) if error.is_cut_off() => break,
            Err(error) => return Err(error),
        }
    }
    Ok(all.finish(header, end))
}

struct PerCall {
    operations: u64,
    errors: u64,
    bytes: u64,
    sizes: Spread,
    times: Spread,
}

#[derive(Default)]
struct PerDirection {
    operations: u64,
    bytes: u64,
    sequential: u64,
    random: u64,
    first: u64,
    sequential_bytes: u64,
    random_bytes: u64,
    direct: u64,
    positional: u64,
    vectored: u64,
    by_power: Vec<(u64, u64)>,
    by_size: HashMap<u64, u64>,
    uncounted: bool,
}

/// Where the last read and the last write of an open file ended, and how it was opened.
#[derive(Clone, Copy, Default)]
struct Position {
    read: Option<u64>,
    write: Option<u64>,
    flags: u32,
    file: Option<u32>,
}

struct Totals {
    calls: Vec<Option<Box<PerCall>>>,
    directions: [PerDirection; 2],
    handles: HashMap<u32, Position>,
    handles_forgotten: bool,
    timeline: Timeline,
    depth: Depths,
    files: Files,
    errors: HashMap<(usize, u32), u64>,
    processes: Vec<bool>,
    threads: u64,
    with_io: Vec<bool>,
    opens: Opens,
    mapping: Mapping,
    uring: u64,
    operations: u64,
    last_ns: u64,
    writes_since: u64,
    bytes_since: u64,
    writes_between: Spread,
    bytes_between: Spread,
    synchronous_writes: u64,
    sync_ns: u64,
    io_ns: u64,
}

impl Totals {
    fn new() -> Self {
        Totals {
            calls: Vec::new(),
            directions: [PerDirection::default(), PerDirection::default()],
            handles: HashMap::new(),
            handles_forgotten: false,
            timeline: Timeline::new(),
            depth: Depths::new(),
            files: Files::new(),
            errors: HashMap::new(),
            processes: vec![false; MAX_THREADS as usize],
            threads: 0,
            with_io: vec![false; MAX_THREADS as usize],
            opens: Opens {
                operations: 0,
                failed: 0,
                direct: 0,
                synchronous: 0,
                append: 0,
                create: 0,
                truncate: 0,
            },
            mapping: Mapping {
                maps: 0,
                mapped_bytes: 0,
                faults: 0,
                fault_bytes: 0,
            },
            uring: 0,
            operations: 0,
            last_ns: 0,
            writes_since: 0,
            bytes_since: 0,
            writes_between: Spread::new(),
            bytes_between: Spread::new(),
            synchronous_writes: 0,
            sync_ns: 0,
            io_ns: 0,
        }
    }

    fn thread(&mut self, thread: &ThreadRecord) {
        self.threads += 1;
        if let Some(known) = self.processes.get_mut(thread.process as usize) {
            *known = true;
        }
    }

    fn operation(&mut self, op: &Op) {
        let op = &Op {
            file: self.file(op),
            ..op.clone()
        };
        let purpose = purpose(op.call);
        let end_ns = op.end_ns();
        let moved = moved(op);
        self.operations += 1;
        self.uring += u64::from(op.uring);
        self.last_ns = self.last_ns.max(end_ns);
        self.call(op, moved);
        match purpose {
            Purpose::Threads => return,
            Purpose::Metadata => self.metadata(op),
            Purpose::Read | Purpose::Write | Purpose::Sync => {
                if let Some(with_io) = self.with_io.get_mut(op.thread as usize) {
                    *with_io = true;
                }
                self.io_ns = self.io_ns.saturating_add(op.duration_ns);
                self.depth.add(op.start_ns, end_ns);
            }
        }
        match purpose {
            Purpose::Read => self.read(op, moved),
            Purpose::Write => self.write(op, moved),
            Purpose::Sync => self.sync(op),
            _ => {}
        }
        let written = match op.call {
            Call::Copy | Call::Write => moved,
            _ => 0,
        };
        let read = if purpose == Purpose::Read { moved } else { 0 };
        self.timeline.add(op, purpose, read, written);
    }

    fn call(&mut self, op: &Op, moved: u64) {
        let place = op.call as usize;
        if self.calls.len() <= place {
            self.calls.resize_with(place + 1, || None);
        }
        let totals = self.calls[place].get_or_insert_with(|| {
            Box::new(PerCall {
                operations: 0,
                errors: 0,
                bytes: 0,
                sizes: Spread::new(),
                times: Spread::new(),
            })
        });
        totals.operations += 1;
        totals.times.record(op.duration_ns);
        if op.result < 0 {
            totals.errors += 1;
            let errno = u32::try_from(op.result.unsigned_abs()).unwrap_or(0);
            let known = self.errors.contains_key(&(place, errno));
            let key = if known || self.errors.len() < MOST_ERRORS {
                (place, errno)
            } else {
                (place, 0)
            };
            *self.errors.entry(key).or_default() += 1;
        } else if moved > 0 {
            totals.bytes = totals.bytes.saturating_add(moved);
            totals.sizes.record(moved);
        }
    }

    fn metadata(&mut self, op: &Op) {
        match op.call {
            Call::Open => self.open(op),
            Call::Close => {
                if let Some(handle) = op.handle {
                    self.handles.remove(&handle);
                }
            }
            Call::Map if op.result >= 0 => {
                self.mapping.maps += 1;
                self.mapping.mapped_bytes = self.mapping.mapped_bytes.saturating_add(op.length);
            }
            Call::Truncate | Call::Unlink if op.result >= 0 => self.files.changed(op.file),
            _ => {}
        }
    }

    fn open(&mut self, op: &Op) {
        let has = |flag: u32| u64::from(op.flags & flag != 0);
        self.opens.operations += 1;
        if op.result < 0 {
            self.opens.failed += 1;
            return;
        }
        self.opens.direct += has(O_DIRECT);
        self.opens.synchronous += has(O_DSYNC);
        self.opens.append += has(O_APPEND);
        self.opens.create += has(O_CREAT);
        self.opens.truncate += has(O_TRUNC);
        if let Some(handle) = op.handle {
            self.position(handle).flags = op.flags;
        }
    }

    /// Return the file of an operation; also if only its handle is known.
    fn file(&mut self, op: &Op) -> Option<u32> {
        let Some(handle) = op.handle else {
            return op.file;
        };
        match op.file {
            None => self.handles.get(&handle)?.file,
            Some(file) => {
                if op.result >= 0 && op.call != Call::Close {
                    self.position(handle).file = Some(file);
                }
                Some(file)
            }
        }
    }

    fn position(&mut self, handle: u32) -> &mut Position {
        if self.handles.len() >= MOST_HANDLES && !self.handles.contains_key(&handle) {
            self.handles.clear();
            self.handles_forgotten = true;
        }
        self.handles.entry(handle).or_default()
    }

    fn read(&mut self, op: &Op, moved: u64) {
        match op.call {
            Call::Fault => {
                self.mapping.faults += 1;
                self.mapping.fault_bytes = self.mapping.fault_bytes.saturating_add(moved);
            }
            Call::Copy => {
                match (op.other, op.target) {
                    (Some(other), Some(target)) if moved > 0 => {
                        self.files.access(other, target.offset, moved, true);
                    }
                    (Some(other), _) => self.files.copied(other, moved),
                    (None, _) => {}
                }
                self.writes_since += 1;
                self.bytes_since = self.bytes_since.saturating_add(moved);
            }
            _ if op.result >= 0 => self.access(op, moved, 0),
            _ => {}
        }
        if let (Some(file), true) = (op.file, moved > 0) {
            self.files.access(file, op.offset, moved, false);
        }
    }

    fn write(&mut self, op: &Op, moved: u64) {
        if op.result < 0 {
            return;
        }
        self.access(op, moved, 1);
        self.writes_since += 1;
        self.bytes_since = self.bytes_since.saturating_add(moved);
        if let (Some(file), true) = (op.file, moved > 0) {
            self.files.access(file, op.offset, moved, true);
        }
    }

    /// Count a read (0) or write (1) that succeeded.
    fn access(&mut self, op: &Op, moved: u64, way: usize) {
        let mut before = None;
        let mut flags = 0;
        if let Some(handle) = op.handle {
            let position = self.position(handle);
            let last = if way == 0 {
                &mut position.read
            } else {
                &mut position.write
            };
            before = last.replace(op.offset.saturating_add(moved));
            flags = position.flags;
        }
        if way == 1 && flags & O_DSYNC != 0 {
            self.synchronous_writes += 1;
        }
        let totals = &mut self.directions[way];
        totals.operations += 1;
        totals.bytes = totals.bytes.saturating_add(moved);
        totals.direct += u64::from(flags & O_DIRECT != 0);
        totals.positional += u64::from(op.positional);
        totals.vectored += u64::from(op.vectors > 1);
        match before {
            None => totals.first += 1,
            Some(end) if end == op.offset => {
                totals.sequential += 1;
                totals.sequential_bytes = totals.sequential_bytes.saturating_add(moved);
            }
            Some(_) => {
                totals.random += 1;
                totals.random_bytes = totals.random_bytes.saturating_add(moved);
            }
        }
        totals.size(moved);
    }

    fn sync(&mut self, op: &Op) {
        self.sync_ns = self.sync_ns.saturating_add(op.duration_ns);
        if op.result < 0 {
            return;
        }
        if let Some(file) = op.file {
            self.files.synced(file);
        }
        self.writes_between.record(self.writes_since);
        self.bytes_between.record(self.bytes_since);
        (self.writes_since, self.bytes_since) = (0, 0);
    }

    fn finish(self, header: Header, end: Option<crate::End>) -> Summary {
        let duration_ns = end
            .as_ref()
            .map_or(0, |end| end.duration_ns)
            .max(self.last_ns);
        let mut limits = Vec::new();
        if self.handles_forgotten {
            limits.push(format!(
                "more than {MOST_HANDLES} files open at once: some accesses count as the first of their file"
            ));
        }
        if self.directions.iter().any(|one| one.uncounted) {
            limits.push(format!(
                "more than {MOST_SIZES} different sizes: only the first are counted one by one"
            ));
        }
        let depths = self.depth.finish(duration_ns);
        if depths.approximate {
            limits.push(
                "an operation overlapped too many others: the numbers in flight are approximate"
                    .into(),
            );
        }
        let files = self.files.finish(&mut limits);
        let (busy_ns, total_ns) = (depths.busy_ns, depths.total_ns);
        let mut calls: Vec<CallTotals> = Vec::new();
        for (place, totals) in self.calls.iter().enumerate() {
            let (Some(totals), Some(call)) = (totals, call_at(place)) else {
                continue;
            };
            calls.push(CallTotals {
                call: call.name(),
                purpose: purpose_name(purpose(call)),
                operations: totals.operations,
                errors: totals.errors,
                bytes: totals.bytes,
                size: totals.sizes.quantiles(),
                time_ns: totals.times.quantiles().unwrap_or_default(),
            });
        }
        let mut errors: Vec<Failure> = (self.errors.iter())
            .map(|(&(place, errno), &operations)| Failure {
                call: call_at(place).map_or("", Call::name),
                errno,
                operations,
            })
            .collect();
        errors.sort_by(|a, b| {
            (b.operations.cmp(&a.operations))
                .then_with(|| (a.call, a.errno).cmp(&(b.call, b.errno)))
        });
        if errors.len() > SHOWN_ERRORS {
            limits.push(format!(
                "{} more kinds of errors",
                errors.len() - SHOWN_ERRORS
            ));
            errors.truncate(SHOWN_ERRORS);
        }
        let [read, write] = self.directions;
        Summary {
            recorded_at: header.recorded_at,
            kernel: header.kernel,
            command: header.command,
            under: header.under,
            names_hashed: header.names_hashed,
            complete: end.is_some(),
            duration_ns,
            operations: self.operations,
            lost: end.as_ref().map_or(0, |end| end.lost),
            elsewhere: end.as_ref().map_or(0, |end| end.elsewhere),
            uring: self.uring,
            calls,
            read: read.report(),
            write: write.report(),
            syncs: Syncs {
                operations: self.bytes_between.count(),
                writes_between: self.writes_between.quantiles(),
                bytes_between: self.bytes_between.quantiles(),
                time_share: share(self.sync_ns, self.io_ns),
                files: files.synced,
                synchronous_writes: self.synchronous_writes,
            },
            mapping: self.mapping,
            opens: self.opens,
            concurrency: Concurrency {
                threads: self.threads,
                processes: self.processes.iter().filter(|one| **one).count() as u64,
                threads_with_io: self.with_io.iter().filter(|one| **one).count() as u64,
                busy_ns,
                mean: share(total_ns, duration_ns),
                mean_while_busy: share(total_ns, busy_ns),
                peak: depths.peak,
                depths: depths.shares,
            },
            timeline: self.timeline.finish(duration_ns),
            files,
            errors,
            limits,
        }
    }
}

impl PerDirection {
    fn size(&mut self, moved: u64) {
        let power = if moved == 0 {
            0
        } else {
            1 + (u64::BITS - (moved - 1).leading_zeros()) as usize
        };
        if self.by_power.len() <= power {
            self.by_power.resize(power + 1, (0, 0));
        }
        self.by_power[power].0 += 1;
        self.by_power[power].1 = self.by_power[power].1.saturating_add(moved);
        if let Some(count) = self.by_size.get_mut(&moved) {
            *count += 1;
        } else if self.by_size.len() < MOST_SIZES {
            self.by_size.insert(moved, 1);
        } else {
            self.uncounted = true;
        }
    }

    fn report(self) -> Direction {
        let sizes = (self.by_power.iter().enumerate())
            .filter(|(_, (operations, _))| *operations > 0)
            .map(|(power, &(operations, bytes))| SizeTotals {
                up_to: if power == 0 {
                    0
                } else {
                    1_u64.checked_shl(power as u32 - 1).unwrap_or(u64::MAX)
                },
                operations,
                bytes,
            })
            .collect();
        let mut common: Vec<SizeTotals> = (self.by_size.into_iter())
            .map(|(size, operations)| SizeTotals {
                up_to: size,
                operations,
                bytes: size.saturating_mul(operations),
            })
            .collect();
        common.sort_by(|a, b| (b.operations.cmp(&a.operations)).then(a.up_to.cmp(&b.up_to)));
        common.truncate(COMMON_SIZES);
        Direction {
            operations: self.operations,
            bytes: self.bytes,
            sequential: self.sequential,
            random: self.random,
            first: self.first,
            sequential_bytes: self.sequential_bytes,
            random_bytes: self.random_bytes,
            direct: self.direct,
            positional: self.positional,
            vectored: self.vectored,
            sizes,
            common,
        }
    }
}

/// Return the bytes that an operation moved to or from a file.
fn moved(op: &Op) -> u64 {
    match op.call {
        Call::Read | Call::Write | Call::Send | Call::Copy | Call::Fault => {
            u64::try_from(op.result).unwrap_or(0)
        }
        _ => 0,
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

fn call_at(place: usize) -> Option<Call> {
    Call::ALL.get(place).copied()
}

fn purpose_name(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Read => "read",
        Purpose::Write => "write",
        Purpose::Sync => "sync",
        Purpose::Metadata => "metadata",
        Purpose::Threads => "threads",
    }
}

#[cfg(test)]
mod tests;
