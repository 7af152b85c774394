//! A trace in memory, ready to be replayed: compact steps by thread, and what each waits for.
//!
//! A step takes 40 bytes, and a run 8 more for what it measures. Reading a trace takes about twice
//! as much for a moment.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io::Read;

use iotrace::{Call, FileKind, Op, Reader, Record};

use super::brief::Brief;
use super::folders::Folders;
use super::order::{self, WaitFor};
use crate::error::{Error, Result};

/// No trace with more operations is replayed: they would take half a gigabyte.
pub const MOST_OPERATIONS: usize = 10_000_000;
/// Bytes per operation at the moment of highest use, while a trace is read.
const BYTES_EACH: u64 = 110;
/// Available memory is looked at after this many operations.
const LOOK_EVERY: usize = 1 << 18;
/// The most bytes of names that follow from renames of folders: few bytes of a trace can make long names.
const MOST_ORIGIN_BYTES: usize = 256 << 20;
/// A cold page is read as a whole.
const PAGE: u64 = 4096;
/// In place of the offset of a copy that writes where the handle of its target is.
const AT_POSITION: u64 = u64::MAX;
/// Where a step has no file or handle.
pub const NONE: u32 = u32::MAX;

/// Bits of a step.
pub mod bit {
    /// The call gets its offset as an argument.
    pub const POSITIONAL: u8 = 1;
    pub const URING: u8 = 1 << 1;
    /// The position of the description is set first.
    pub const SEEK: u8 = 1 << 2;
    /// The call gets a name, not a handle.
    pub const BY_NAME: u8 = 1 << 3;
    /// `length` is a place in `Plan::lengths`.
    pub const LONG: u8 = 1 << 4;
    /// Nothing is done, only the time is kept.
    pub const LEFT_OUT: u8 = 1 << 5;
    /// It created or truncated its file.
    pub const CREATES: u8 = 1 << 6;
}

/// One operation.
///
/// `subject` is the handle of calls on one, and else the file. `second` is the handle that an open
/// gives, the second file of a rename or link, the handle that a copy writes to, the file of a
/// mapping, and the thread of a start or wait.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Also the new size of a truncation, and when the wait for a thread began.
    pub offset: u64,
    pub start_ns: u64,
    length: u32,
    duration: Brief,
    pub subject: u32,
    pub second: u32,
    pub result: i32,
    pub call: Call,
    bits: u8,
    /// The number of buffers of a read or write; else a place in `Plan::flags`.
    extra: u16,
}

const _: () = assert!(size_of::<Step>() == 40);

impl Step {
    #[inline(always)]
    pub fn is(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    #[inline(always)]
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration.value())
    }

    pub fn vectors(&self) -> usize {
        usize::from(self.extra).max(1)
    }

    /// Return whether it has reached a file or its names, successfully.
    fn succeeded(&self) -> bool {
        self.result >= 0 && !self.is(bit::LEFT_OUT)
    }
}

/// A file as it was before the recording.
#[derive(Debug)]
pub struct FileFacts {
    /// Relative to the folder.
    pub path: CString,
    /// Where it was before the recording, if it is known only from a folder that was renamed.
    pub origin: Option<CString>,
    pub kind: FileKind,
    /// None: it did not exist.
    pub size: Option<u64>,
    pub stored: u64,
    pub extents: u32,
    /// Where it was on its disk; files are made in this order. 0: not known.
    pub position: u64,
    /// The folder that it is in, if that has a record.
    pub parent: u32,
    /// The replay may change it, so it is made again before the next one.
    pub changed: bool,
    /// Bytes that the replay may add to it.
    pub growth: u64,
}

#[derive(Debug, Default)]
pub struct ThreadPlan {
    pub steps: Vec<Step>,
    /// By the step before which it waits.
    pub waits: Vec<WaitFor>,
    /// Other threads wait for it.
    pub watched: bool,
    /// When the thread was started in the recording.
    pub born_ns: u64,
    /// The longest read, in bytes.
    pub reads: u64,
    /// The most operations by io_uring that were in flight at once.
    pub in_flight: u32,
}

/// A handle that is open before the replay begins.
#[derive(Clone, Copy, Debug)]
pub struct OpenBefore {
    pub handle: u32,
    pub file: u32,
    pub writes: bool,
}

#[derive(Debug, Default)]
pub struct Plan {
    pub threads: Vec<ThreadPlan>,
    pub files: Vec<FileFacts>,
    pub handles: usize,
    pub open_before: Vec<OpenBefore>,
    /// The most handles that are open at once.
    pub most_open: usize,
    /// Lengths that need more than 32 bits, and those of copies, each with the offset in its target.
    lengths: Vec<u64>,
    flags: Vec<u32>,
    pub facts: Facts,
    /// The file of each handle, for messages.
    handle_files: Vec<u32>,
    /// The longest write, in bytes.
    pub writes: u64,
    /// A folder that existed is renamed: the whole tree is made again.
    pub moves_folders: bool,
}

#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Facts {
    pub operations: u64,
    pub threads: usize,
    pub calls: std::collections::BTreeMap<&'static str, u64>,
    /// Steps that are not replayed: on files that are none, without a handle, or failed changes.
    pub left_out: u64,
    /// Files and folders to make.
    pub files: u64,
    pub bytes: u64,
    pub stored_bytes: u64,
    pub growth_bytes: u64,
    /// What a replay reads at least from the device if nothing is cached.
    pub least_read_bytes: u64,
    pub duration_ns: u64,
    pub waits: u64,
    /// The trace has its end record.
    pub complete: bool,
    pub lost: u64,
    pub elsewhere: u64,
}

impl Plan {
    pub fn length(&self, step: &Step) -> u64 {
        match step.is(bit::LONG) {
            true => self.lengths[step.length as usize],
            false => step.length.into(),
        }
    }

    /// Return the offset that a copy gives for its target; None: it writes where the handle is.
    pub fn target(&self, step: &Step) -> Option<u64> {
        let offset = *self.lengths.get(step.length as usize + 1)?;
        (step.call == Call::Copy && offset != AT_POSITION).then_some(offset)
    }

    pub fn flags(&self, step: &Step) -> u32 {
        self.flags[usize::from(step.extra)]
    }

    /// Return the file that a step is about, for messages.
    pub fn file_of(&self, step: &Step) -> Option<&FileFacts> {
        let named = step.is(bit::BY_NAME)
            || matches!(step.call, Call::Open | Call::Fault | Call::Unmap)
            || changes_names(step.call);
        let file = match named {
            true => step.subject,
            false => *self.handle_files.get(step.subject as usize)?,
        };
        self.files.get(file as usize)
    }

    /// Read a trace. `name` is for messages. Refuses one that is damaged, too long or too large for
    /// the memory.
    pub fn read(from: impl Read, name: &str) -> Result<Plan> {
        let wrong = |error: iotrace::Error| Error::bad(format!("read the trace {name}: {error}"));
        let (_, reader) = Reader::new(from).map_err(wrong)?;
        let mut reading = Reading::default();
        for record in reader {
            match record {
                Ok(Record::File(file)) => reading.file(file, name)?,
                Ok(Record::Thread(thread)) => reading.threads.push(thread.process),
                Ok(Record::Op(op)) => reading.op(&op, name)?,
                Ok(Record::End(end)) => {
                    let facts = &mut reading.plan.facts;
                    facts.complete = true;
                    (facts.lost, facts.elsewhere) = (end.lost, end.elsewhere);
                    facts.duration_ns = end.duration_ns;
                }
                Err(error) if error.is_cut_off() => break,
                Err(error) => return Err(wrong(error)),
            }
        }
        reading.plan(name)
    }
}

/// What is known of an open file description while a trace is read.
#[derive(Clone, Copy)]
struct Handle {
    /// Where the next call without an offset reads or writes.
    position: u64,
    file: u32,
    thread: u16,
    opened: bool,
    /// It was open before, or has been opened.
    open: bool,
    writes: bool,
    shared: bool,
}

/// What is known of a file's use while a trace is read.
#[derive(Clone, Copy, Default)]
struct Use {
    exists: bool,
    /// A call has changed it, so what it holds is no longer what it held.
    changed: bool,
    wrote: u64,
    end: u64,
    longest_read: u64,
    /// The handle that was opened last.
    handle: Option<u32>,
}

/// A trace that is being read, in the order in which its operations ended.
#[derive(Default)]
struct Reading {
    plan: Plan,
    steps: Vec<Step>,
    /// By step.
    of_thread: Vec<u16>,
    /// The process of each thread.
    threads: Vec<u32>,
    handles: Vec<Handle>,
    open: usize,
    uses: Vec<Use>,
    /// By the path's record: files with the same path are one.
    by_path: HashMap<Vec<u8>, u32>,
    alias: Vec<u32>,
    folders: Folders,
    /// Bytes of all origins.
    origin_bytes: usize,
    flag_places: HashMap<u32, u16>,
    counts: [u64; Call::ALL.len()],
}

impl Reading {
    fn file(&mut self, file: iotrace::FileRecord, name: &str) -> Result<()> {
        let next = self.plan.files.len() as u32;
        let known = *self.by_path.entry(file.path.clone()).or_insert(next);
        self.alias.push(known);
        if known != next {
            return Ok(());
        }
        self.uses.push(Use {
            exists: file.size.is_some(),
            ..Use::default()
        });
        let origin = match file.size {
            Some(_) => self.origin(&file.path, name)?,
            None => None,
        };
        self.plan.files.push(FileFacts {
            origin,
            // The reader has refused paths with a zero byte.
            path: match file.path.is_empty() {
                true => c".".to_owned(),
                false => CString::new(file.path).unwrap_or_default(),
            },
            kind: file.kind,
            size: file.size,
            stored: file.stored,
            extents: file.extents,
            position: file.position,
            parent: NONE,
            changed: false,
            growth: 0,
        });
        Ok(())
    }

    /// Return where a file was that is first seen in a folder that has been renamed.
    fn origin(&mut self, path: &[u8], name: &str) -> Result<Option<CString>> {
        let Some(found) = self.folders.origin(path) else {
            return Ok(None);
        };
        self.origin_bytes += found.len();
        if self.origin_bytes > MOST_ORIGIN_BYTES {
            return Err(Error::unsupported(format!(
                "read the trace {name}: the names of files in renamed folders take more than {} MiB; record a shorter time",
                MOST_ORIGIN_BYTES >> 20
            )));
        }
        Ok(Some(CString::new(found).unwrap_or_default()))
    }

    fn op(&mut self, op: &Op, name: &str) -> Result<()> {
        if self.steps.len() == MOST_OPERATIONS {
            return Err(Error::unsupported(format!(
                "read the trace {name}: it has more than {MOST_OPERATIONS} operations, the most that can be replayed; record a shorter time"
            )));
        }
        if self.steps.len() % LOOK_EVERY == 0 {
            check_memory(self.steps.len() + LOOK_EVERY, name)?;
        }
        self.counts[op.call as usize] += 1;
        let mut file = op.file.map(|file| self.alias[file as usize]);
        if let Some(handle) = op.handle {
            self.meet(handle, op, file);
            file = file.or_else(|| self.file_of(op.handle));
        }
        let mut step = Step {
            offset: op.offset,
            start_ns: op.start_ns,
            length: 0,
            duration: Brief::of(op.duration_ns),
            subject: NONE,
            second: NONE,
            result: op.result.clamp(i32::MIN.into(), i32::MAX.into()) as i32,
            call: op.call,
            bits: if op.uring { bit::URING } else { 0 },
            extra: 0,
        };
        let known = self.fill(&mut step, op, file)?;
        let other_kind = file.is_some_and(|file| {
            let facts = &self.plan.files[file as usize];
            facts.kind == FileKind::Other && facts.size.is_some()
        });
        if !known || other_kind || (step.result < 0 && changes_data(op.call)) {
            step.bits |= bit::LEFT_OUT;
            self.plan.facts.left_out += 1;
        } else {
            self.follow(&mut step, op, file);
        }
        self.steps.push(step);
        self.of_thread.push(op.thread as u16);
        Ok(())
    }

    /// Fill in what the call works on. Returns false if the trace does not say.
    fn fill(&mut self, step: &mut Step, op: &Op, file: Option<u32>) -> Result<bool> {
        let (has_file, has_handle) = (file.is_some(), op.handle.is_some());
        step.subject = op.handle.or(file).unwrap_or(NONE);
        let known = match op.call {
            Call::Open => {
                step.subject = file.unwrap_or(NONE);
                step.second = op.handle.filter(|_| op.result >= 0).unwrap_or(NONE);
                has_file
            }
            Call::Truncate | Call::Stat => {
                step.bits |= if has_handle { 0 } else { bit::BY_NAME };
                has_file || has_handle
            }
            Call::Rename | Call::Link => {
                step.subject = file.unwrap_or(NONE);
                let other = op.other.map(|other| self.alias[other as usize]);
                step.second = other.unwrap_or(NONE);
                has_file && other.is_some()
            }
            Call::Unlink | Call::Mkdir | Call::Rmdir | Call::Symlink => {
                step.subject = file.unwrap_or(NONE);
                has_file
            }
            Call::Copy => {
                let other = op.other.map(|other| self.alias[other as usize]);
                let to = other.and_then(|other| self.uses[other as usize].handle);
                step.second = to.unwrap_or(NONE);
                has_handle && to.is_some()
            }
            Call::Map => {
                step.second = file.unwrap_or(NONE);
                has_handle && step.second != NONE
            }
            Call::Fault | Call::Unmap => {
                step.subject = file.unwrap_or(NONE);
                has_file
            }
            Call::Wait | Call::Start => {
                step.subject = NONE;
                step.second = op.other.unwrap_or(NONE);
                op.other.is_some()
            }
            Call::Sync | Call::Exit => true,
            _ => has_handle,
        };
        match op.call {
            Call::Read | Call::Write => step.extra = op.vectors,
            Call::Truncate => step.offset = op.length,
            // It counts from its end on: what it waited for came in between.
            Call::Wait => {
                step.offset = op.start_ns;
                step.start_ns = op.end_ns();
                step.duration = Brief::default();
            }
            _ => step.extra = self.flag_place(op.flags)?,
        }
        match u32::try_from(op.length) {
            Ok(length) if op.call != Call::Copy => step.length = length,
            _ => {
                step.bits |= bit::LONG;
                step.length = self.plan.lengths.len() as u32;
                self.plan.lengths.push(op.length);
                if op.call == Call::Copy {
                    self.plan.lengths.push(AT_POSITION);
                }
            }
        }
        Ok(known)
    }

    fn file_of(&self, handle: Option<u32>) -> Option<u32> {
        let known = handle.and_then(|handle| self.handles.get(handle as usize));
        known.map(|known| known.file).filter(|file| *file != NONE)
    }

    fn flag_place(&mut self, flags: u32) -> Result<u16> {
        if let Some(place) = self.flag_places.get(&flags) {
            return Ok(*place);
        }
        let place = u16::try_from(self.plan.flags.len()).map_err(|_| {
            Error::bad("read a trace: more than 65536 different flags, so it is no recording")
        })?;
        self.plan.flags.push(flags);
        self.flag_places.insert(flags, place);
        Ok(place)
    }

    /// Follow what a call does to its files and handles.
    fn follow(&mut self, step: &mut Step, op: &Op, file: Option<u32>) {
        if let Some(handle) = op.handle {
            self.follow_handle(step, op, handle);
        }
        let (length, done) = (op.length, op.result.max(0) as u64);
        let succeeded = op.result >= 0;
        if let Some(file) = file {
            let known = &mut self.uses[file as usize];
            match op.call {
                Call::Open => {
                    let creates = op.flags & libc::O_CREAT as u32 != 0;
                    let truncates = op.flags & libc::O_TRUNC as u32 != 0;
                    if succeeded && (truncates || (creates && !known.exists)) {
                        step.bits |= bit::CREATES;
                        known.changed = true;
                    }
                    known.exists |= succeeded;
                    if step.second != NONE {
                        known.handle = op.handle;
                    }
                    self.plan.files[file as usize].changed |= creates || truncates;
                }
                Call::Read if !known.changed => {
                    known.longest_read = known.longest_read.max(done);
                }
                Call::Write => {
                    known.changed = true;
                    known.wrote = known.wrote.saturating_add(done);
                    known.end = known.end.max(op.offset.saturating_add(done));
                }
                Call::Allocate => {
                    let punches = op.flags & libc::FALLOC_FL_PUNCH_HOLE as u32 != 0;
                    known.changed = true;
                    if !punches {
                        known.wrote = known.wrote.saturating_add(length);
                        known.end = known.end.max(op.offset.saturating_add(length));
                    }
                }
                Call::Truncate => known.changed = true,
                Call::Unlink | Call::Rmdir | Call::Rename => {
                    known.changed = true;
                    known.exists &= !succeeded;
                }
                Call::Mkdir | Call::Symlink => {
                    known.changed = true;
                    known.exists |= succeeded;
                }
                _ => {}
            }
            let facts = &mut self.plan.files[file as usize];
            facts.changed |= changes_data(op.call) || changes_names(op.call);
            self.plan.moves_folders |= facts.kind == FileKind::Directory
                && facts.size.is_some()
                && op.call == Call::Rename;
        }
        if let Some(other) = op.other.filter(|_| !op.call.concerns_thread()) {
            let other = self.alias[other as usize] as usize;
            self.follow_folder(op, file, other);
            let (known, facts) = (&mut self.uses[other], &mut self.plan.files[other]);
            known.changed = true;
            facts.changed = true;
            known.exists |= succeeded;
            if op.call == Call::Copy {
                let to = &mut self.handles[step.second as usize].position;
                let at = match op.target {
                    Some(target) if target.positional || target.offset != *to => {
                        self.plan.lengths[step.length as usize + 1] = target.offset;
                        target.offset
                    }
                    // Where the description is: it moves on.
                    _ => {
                        let at = *to;
                        *to = at.saturating_add(done);
                        at
                    }
                };
                known.wrote = known.wrote.saturating_add(done);
                known.end = known.end.max(at.saturating_add(done));
            }
            self.plan.moves_folders |= facts.kind == FileKind::Directory && facts.size.is_some();
        }
        match op.call {
            Call::Write => self.plan.writes = self.plan.writes.max(length),
            Call::Read | Call::ReadDir => {
                let thread = op.thread as usize;
                let threads = &mut self.plan.threads;
                if threads.len() <= thread {
                    threads.resize_with(thread + 1, ThreadPlan::default);
                }
                threads[thread].reads = threads[thread].reads.max(length);
            }
            _ => {}
        }
    }

    /// Take note of a folder that has another name from here on.
    fn follow_folder(&mut self, op: &Op, file: Option<u32>, other: usize) {
        let files = &self.plan.files;
        let Some(from) = file.map(|file| &files[file as usize]) else {
            return;
        };
        if op.call == Call::Rename && op.result >= 0 && from.kind == FileKind::Directory {
            let (from, to) = (&from.path, &files[other].path);
            self.folders.rename(from.as_bytes(), to.as_bytes());
        }
    }

    /// Take note of a handle. The reader has checked that a new one has the next number.
    fn meet(&mut self, handle: u32, op: &Op, file: Option<u32>) {
        let thread = op.thread as u16;
        if handle as usize == self.handles.len() {
            self.open += 1;
            self.plan.most_open = self.plan.most_open.max(self.open);
            self.handles.push(Handle {
                position: 0,
                file: file.unwrap_or(NONE),
                thread,
                opened: op.call == Call::Open,
                open: true,
                writes: false,
                shared: false,
            });
        }
        let known = &mut self.handles[handle as usize];
        known.shared |= known.thread != thread;
        if known.file == NONE {
            known.file = file.unwrap_or(NONE);
        }
    }

    fn follow_handle(&mut self, step: &mut Step, op: &Op, handle: u32) {
        let known = &mut self.handles[handle as usize];
        known.writes |= changes_data(op.call);
        match op.call {
            Call::Open => known.position = 0,
            Call::Close if known.open => {
                known.open = false;
                self.open -= 1;
            }
            Call::Read | Call::Write | Call::Send | Call::Copy => {
                // Several in flight would race for one position.
                if op.positional || op.uring {
                    step.bits |= bit::POSITIONAL;
                } else {
                    if op.offset != known.position {
                        step.bits |= bit::SEEK;
                    }
                    known.position = op.offset.saturating_add(op.result.max(0) as u64);
                }
            }
            _ => {}
        }
    }

    /// Complete the plan once everything is read.
    fn plan(mut self, name: &str) -> Result<Plan> {
        if self.steps.is_empty() {
            return Err(Error::bad(format!(
                "read the trace {name}: it has no operations under its folder, so there is nothing to replay"
            )));
        }
        self.find_parents();
        self.find_origins();
        for step in &mut self.steps {
            let on_handle = matches!(step.call, Call::Read | Call::Write | Call::Send);
            if on_handle && !step.is(bit::LEFT_OUT) && self.handles[step.subject as usize].shared {
                // Two threads that set one position would race.
                step.bits = (step.bits | bit::POSITIONAL) & !bit::SEEK;
            }
        }
        let plan = &mut self.plan;
        for (handle, known) in self.handles.iter().enumerate() {
            if !known.opened && known.file != NONE {
                plan.open_before.push(OpenBefore {
                    handle: handle as u32,
                    file: known.file,
                    writes: known.writes,
                });
            }
        }
        plan.handles = self.handles.len();
        for (facts, known) in plan.files.iter_mut().zip(&self.uses) {
            let before = if facts.size.is_some() {
                facts.stored
            } else {
                0
            };
            facts.growth = known.wrote.min(known.end.saturating_sub(before));
            plan.facts.growth_bytes = plan.facts.growth_bytes.saturating_add(facts.growth);
            let Some(size) = facts.size else { continue };
            plan.facts.files += 1;
            if facts.kind == FileKind::Regular {
                let total = &mut plan.facts;
                total.bytes = total.bytes.saturating_add(size);
                total.stored_bytes = total.stored_bytes.saturating_add(facts.kept_bytes());
                if facts.kept_bytes() >= size {
                    let least = known.longest_read.min(size) / PAGE * PAGE;
                    total.least_read_bytes = total.least_read_bytes.saturating_add(least);
                }
            }
        }
        let handle_files: Vec<u32> = self.handles.iter().map(|handle| handle.file).collect();
        self.handles = Vec::new();
        plan.threads
            .resize_with(self.threads.len(), ThreadPlan::default);
        let recorded = order::Recorded {
            steps: std::mem::take(&mut self.steps),
            of_thread: std::mem::take(&mut self.of_thread),
            processes: &self.threads,
            handle_files: &handle_files,
        };
        order::arrange(recorded, plan, name)?;
        plan.handle_files = handle_files;
        let facts = &mut plan.facts;
        facts.threads = self.threads.len();
        for (call, count) in Call::ALL.into_iter().zip(self.counts) {
            if count > 0 {
                facts.calls.insert(call.name(), count);
                facts.operations += count;
            }
        }
        let last = (plan.threads.iter()).flat_map(|thread| thread.steps.iter().map(Step::end_ns));
        facts.duration_ns = facts.duration_ns.max(last.max().unwrap_or(0));
        Ok(self.plan)
    }

    fn find_parents(&mut self) {
        for number in 0..self.plan.files.len() {
            let path = self.plan.files[number].path.as_bytes();
            let parent = match path.iter().rposition(|byte| *byte == b'/') {
                Some(slash) => self.by_path.get(&path[..slash]),
                None => self
                    .by_path
                    .get(&b""[..])
                    .filter(|root| **root != number as u32),
            };
            self.plan.files[number].parent = parent.copied().unwrap_or(NONE);
        }
    }

    /// A file did not exist if the replay makes its folder, or if it has another record where it
    /// was.
    fn find_origins(&mut self) {
        let by_path = std::mem::take(&mut self.by_path);
        let files = &mut self.plan.files;
        let is_new: Vec<bool> = files.iter().map(|file| file.size.is_none()).collect();
        for file in files.iter_mut().filter(|file| file.size.is_some()) {
            let path = file.place().to_bytes().to_vec();
            let slashes = (0..path.len()).filter(|place| path[*place] == b'/');
            let folders = slashes.filter_map(|slash| by_path.get(&path[..slash]));
            let of_replay = folders.into_iter().any(|folder| is_new[*folder as usize]);
            if of_replay || (file.origin.is_some() && by_path.contains_key(&path)) {
                file.size = None;
            }
        }
    }
}

impl FileFacts {
    /// Return where it was before the recording.
    pub fn place(&self) -> &CStr {
        self.origin.as_deref().unwrap_or(&self.path)
    }

    /// Return how many bytes to store of the file; the rest are holes. A small file is stored whole:
    /// some file systems keep it in the inode, and count no block.
    pub fn kept_bytes(&self) -> u64 {
        match self.size {
            None => 0,
            Some(size) if size <= PAGE => size,
            Some(size) => self.stored.min(size),
        }
    }
}

/// Return whether a call changes the data or size of a file.
fn changes_data(call: Call) -> bool {
    matches!(
        call,
        Call::Write | Call::Truncate | Call::Allocate | Call::Copy
    )
}

/// Return whether a call changes names, if it succeeds.
fn changes_names(call: Call) -> bool {
    matches!(
        call,
        Call::Rename | Call::Link | Call::Symlink | Call::Unlink | Call::Mkdir | Call::Rmdir
    )
}

/// Call a function with everything that a step touches, and whether the step changes it. Files have
/// their numbers, handles those after the files.
pub fn touches(
    step: &Step,
    files: &[FileFacts],
    handle_files: &[u32],
    mut touched: impl FnMut(u32, bool),
) {
    if step.is(bit::LEFT_OUT) {
        return;
    }
    let handle = |handle: u32| files.len() as u32 + handle;
    let file_of = |handle: u32| handle_files[handle as usize];
    let (changes, succeeded) = (changes_data(step.call), step.succeeded());
    let mut named = NONE;
    match step.call {
        Call::Open => {
            named = step.subject;
            touched(named, step.is(bit::CREATES));
            if step.second != NONE {
                touched(handle(step.second), true);
            }
        }
        Call::Close => touched(handle(step.subject), true),
        Call::Truncate | Call::Stat if step.is(bit::BY_NAME) => {
            named = step.subject;
            touched(named, changes && succeeded);
        }
        Call::Rename | Call::Link => {
            named = step.subject;
            touched(named, succeeded);
            touched(step.second, succeeded);
            let parent = files[step.second as usize].parent;
            if parent != NONE {
                touched(parent, false);
            }
        }
        Call::Unlink | Call::Mkdir | Call::Rmdir | Call::Symlink => {
            named = step.subject;
            touched(named, succeeded);
        }
        Call::Fault | Call::Unmap => touched(step.subject, false),
        Call::Sync | Call::Wait | Call::Start | Call::Exit => {}
        Call::Copy => {
            for (number, changes) in [(step.subject, false), (step.second, succeeded)] {
                touched(handle(number), false);
                if file_of(number) != NONE {
                    touched(file_of(number), changes);
                }
            }
        }
        _ => {
            touched(handle(step.subject), false);
            if file_of(step.subject) != NONE {
                touched(file_of(step.subject), changes && succeeded);
            }
        }
    }
    if named != NONE && files[named as usize].parent != NONE {
        touched(files[named as usize].parent, false);
    }
}

fn check_memory(operations: usize, name: &str) -> Result<()> {
    let wanted = operations as u64 * BYTES_EACH;
    match available_memory() {
        Some(available) if wanted > available / 2 => Err(Error::unsupported(format!(
            "read the trace {name}: {operations} operations need {} MiB of memory, and half of the available {} MiB may be used; record a shorter time",
            wanted >> 20,
            available >> 20
        ))),
        _ => Ok(()),
    }
}

/// Return the bytes that the kernel says are available (MemAvailable of /proc/meminfo).
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    kib.checked_mul(1024)
}
