//! Turns the kernel's events into the operations of a trace.
//!
//! What an event does not say is followed here: which open file description each descriptor of each
//! process means (shared by threads, copied by fork, closed by execve), the current folders, and
//! names. Descriptions are also known by the address of the kernel's open file, so a descriptor is
//! still the right one if it came another way, or if its open was lost.
//!
//! Memory is bounded by what the application has open at a time, and by the number of names.

mod descriptors;
mod operations;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::rc::Rc;

use iotrace::{Call, FileKind, FileRecord, Op, Problem, ThreadRecord, Writer};
use libc::c_int;

use super::names::{First, NameHash, Names, Place};
use crate::error::{Error, Result};
use crate::trace::bpf::event::{Event, Kind};
use crate::trace::bpf::recorder::UringWords;

/// Requests of libaio in flight.
const MOST_SUBMITTED: usize = 1 << 16;
/// Ended processes for which nobody has waited yet.
const MOST_ENDED: usize = 1 << 16;
const O_CLOEXEC: u64 = libc::O_CLOEXEC as u64;

/// What was counted, besides the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations on other files, pipes and sockets.
    pub elsewhere: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Files with a guessed state before the start.
    pub guessed: u64,
    /// Operations that the format has no room for: too many threads or files.
    pub beyond: u64,
}

/// An open file description.
struct Description {
    /// The name that it was opened by; None: outside.
    name: Option<u32>,
    /// The absolute path, if it is a folder.
    folder: Option<Vec<u8>>,
    /// The address of the kernel's open file; 0: not known yet.
    file: u64,
    position: u64,
    /// Descriptors that mean it.
    descriptors: u32,
    /// The number in the trace, if it has been used.
    handle: Option<u32>,
}

#[derive(Clone, Copy)]
struct Descriptor {
    description: u32,
    close_on_exec: bool,
}

type Descriptors = HashMap<c_int, Descriptor>;

struct Task {
    process: u32,
    /// The number in the trace, if it has been used.
    thread: Option<u32>,
    descriptors: Rc<RefCell<Descriptors>>,
    folder: Rc<RefCell<Vec<u8>>>,
}

/// A request of libaio that has not been completed yet.
struct Submitted {
    thread: u32,
    start_ns: u64,
    description: Option<u32>,
    operation: u16,
    length: u64,
    offset: u64,
}

pub struct Decoder<W: Write> {
    pub writer: Writer<W>,
    pub names: Names,
    pub counts: Counts,
    hash: Option<NameHash>,
    uring: Option<UringWords>,
    /// When the recording began, on the kernel's clock. What ended before is not in it.
    begin_ns: u64,
    /// The task with the execve that begins the recording.
    awaited: Option<u32>,
    tasks: HashMap<u32, Task>,
    /// By process: its number in the trace.
    processes: HashMap<u32, u32>,
    process_count: u32,
    /// The first threads of ended processes, by process.
    ended: HashMap<u32, u32>,
    descriptions: Vec<Description>,
    free: Vec<u32>,
    by_file: HashMap<u64, u32>,
    /// By process and address.
    submitted: HashMap<(u32, u64), Submitted>,
    handles: u32,
    files: u32,
    threads: u32,
    temporary: u32,
    last_end_ns: u64,
}

impl<W: Write> Decoder<W> {
    pub fn new(
        writer: Writer<W>,
        names: Names,
        hash: Option<NameHash>,
        uring: Option<UringWords>,
    ) -> Self {
        Decoder {
            writer,
            names,
            counts: Counts::default(),
            hash,
            uring,
            begin_ns: 0,
            awaited: None,
            tasks: HashMap::new(),
            processes: HashMap::new(),
            process_count: 0,
            ended: HashMap::new(),
            descriptions: Vec::new(),
            free: Vec::new(),
            by_file: HashMap::new(),
            submitted: HashMap::new(),
            handles: 0,
            files: 0,
            threads: 0,
            temporary: 0,
            last_end_ns: 0,
        }
    }

    /// Begin the recording. `awaited`: a task that does nothing of interest before its execve.
    pub fn begin(&mut self, at_ns: u64, awaited: Option<u32>) {
        self.begin_ns = at_ns;
        self.awaited = awaited;
    }

    /// Return when the recording began, on the kernel's clock.
    pub fn began_ns(&self) -> u64 {
        self.begin_ns
    }

    pub fn flush(&mut self) -> Result<()> {
        self.writer.flush().map_err(unwritten)
    }

    pub fn threads(&self) -> u32 {
        self.threads
    }

    pub fn files(&self) -> u32 {
        self.files
    }

    /// Learn what a running process has open, and which threads it has, from /proc.
    pub fn adopt_process(&mut self, process: u32) {
        let descriptors = Rc::new(RefCell::new(Descriptors::new()));
        let folder = fs::read_link(format!("/proc/{process}/cwd"));
        let folder = folder.map_or(Vec::new(), |path| path.into_os_string().into_vec());
        let folder = Rc::new(RefCell::new(folder));
        let task = || Task {
            process,
            thread: None,
            descriptors: descriptors.clone(),
            folder: folder.clone(),
        };
        self.tasks.insert(process, task());
        for thread in numbers_in(&format!("/proc/{process}/task")) {
            self.tasks.insert(thread as u32, task());
        }
        for number in numbers_in(&format!("/proc/{process}/fd")) {
            self.adopt_descriptor(process, number, 0, &descriptors);
        }
    }

    /// Handle one event.
    pub fn event(&mut self, event: &Event) -> Result<()> {
        match event.kind {
            Kind::Task => return self.started(event),
            Kind::Exec => return self.executed(event),
            Kind::Exit => return self.exited(event),
            _ => {}
        }
        if event.end_ns < self.begin_ns || self.awaited == Some(event.thread) {
            return Ok(());
        }
        if !self.tasks.contains_key(&event.thread) {
            self.found(event);
        }
        match event.kind {
            Kind::Fault => self.fault(event),
            Kind::Uring => self.uring(event),
            Kind::Aio => self.aio(event),
            _ => self.call(event),
        }
    }

    /// A thread that started unseen: it is like the others of its process.
    fn found(&mut self, event: &Event) {
        let other = self
            .tasks
            .values()
            .find(|task| task.process == event.process);
        match other {
            Some(other) => {
                let task = Task {
                    process: event.process,
                    thread: None,
                    descriptors: other.descriptors.clone(),
                    folder: other.folder.clone(),
                };
                self.tasks.insert(event.thread, task);
            }
            None => {
                self.adopt_process(event.process);
                self.tasks.entry(event.thread).or_insert_with(|| Task {
                    process: event.process,
                    thread: None,
                    descriptors: Rc::default(),
                    folder: Rc::default(),
                });
            }
        }
    }

    fn started(&mut self, event: &Event) -> Result<()> {
        let [task, process, flags, ..] = event.arguments;
        let (task, process) = (task as u32, process as u32);
        if !self.tasks.contains_key(&event.thread) {
            self.found(event);
        }
        let parent = &self.tasks[&event.thread];
        let descriptors = match flags & libc::CLONE_FILES as u64 {
            0 => {
                let copy = parent.descriptors.borrow().clone();
                for descriptor in copy.values() {
                    self.descriptions[descriptor.description as usize].descriptors += 1;
                }
                Rc::new(RefCell::new(copy))
            }
            _ => parent.descriptors.clone(),
        };
        let folder = match flags & libc::CLONE_FS as u64 {
            0 => Rc::new(RefCell::new(parent.folder.borrow().clone())),
            _ => parent.folder.clone(),
        };
        self.tasks.insert(
            task,
            Task {
                process,
                thread: None,
                descriptors,
                folder,
            },
        );
        // Those of io_uring run nothing of the application's.
        let of_kernel = flags & libc::CLONE_UNTRACED as u64 != 0;
        if event.end_ns < self.begin_ns || self.awaited.is_some() || of_kernel {
            return Ok(());
        }
        let parent = self.thread(event.thread, None, String::new)?;
        let child = self.thread(task, parent, || event.name())?;
        if parent.is_some() && child.is_some() {
            let op = Op {
                other: child,
                result: 0,
                ..self.op(event, Call::Start)
            };
            self.put(event.thread, op)?;
        }
        Ok(())
    }

    fn executed(&mut self, event: &Event) -> Result<()> {
        // The task that called it has become the first one of its process.
        let before = event.arguments[0] as u32;
        if before != event.thread {
            if let Some(task) = self.tasks.remove(&before) {
                self.tasks.insert(event.thread, task);
            }
        }
        if self.awaited == Some(event.thread) {
            self.awaited = None;
            self.begin_ns = event.end_ns;
        }
        let Some(task) = self.tasks.get_mut(&event.thread) else {
            return Ok(());
        };
        // execve gives the task a private table.
        let mut table = match Rc::strong_count(&task.descriptors) {
            1 => task.descriptors.take(),
            _ => {
                let copy = task.descriptors.borrow().clone();
                for descriptor in copy.values() {
                    self.descriptions[descriptor.description as usize].descriptors += 1;
                }
                copy
            }
        };
        let closed: Vec<c_int> = (table.iter())
            .filter(|(_, descriptor)| descriptor.close_on_exec)
            .map(|(number, _)| *number)
            .collect();
        let closed: Vec<Descriptor> = (closed.iter())
            .filter_map(|number| table.remove(number))
            .collect();
        task.descriptors = Rc::new(RefCell::new(table));
        for descriptor in closed {
            self.released(event, descriptor.description)?;
        }
        Ok(())
    }

    fn exited(&mut self, event: &Event) -> Result<()> {
        self.abandoned(event)?;
        let Some(task) = self.tasks.get(&event.thread) else {
            return Ok(());
        };
        let (thread, process) = (task.thread, task.process);
        if Rc::strong_count(&task.descriptors) == 1 {
            let mut table: Vec<_> = task.descriptors.take().into_iter().collect();
            table.sort_unstable_by_key(|(number, _)| *number);
            for (_, descriptor) in table {
                self.released(event, descriptor.description)?;
            }
        }
        if let Some(thread) = thread {
            let op = self.op(event, Call::Exit);
            self.put(event.thread, op)?;
            if event.thread == process {
                if self.ended.len() >= MOST_ENDED {
                    self.ended.clear();
                }
                self.ended.insert(process, thread);
            }
        }
        self.tasks.remove(&event.thread);
        if !self.tasks.values().any(|task| task.process == process) {
            self.processes.remove(&process);
        }
        Ok(())
    }

    /// Return where a path leads that a task gave; None if its folder is not known.
    fn place(&mut self, thread: u32, folder: c_int, path: &[u8], follow: bool) -> Option<Place> {
        let task = self.tasks.get(&thread)?;
        let folder = if path.first() == Some(&b'/') {
            Vec::new()
        } else if folder == libc::AT_FDCWD {
            task.folder.borrow().clone()
        } else {
            let known = task.descriptors.borrow().get(&folder).copied()?;
            self.descriptions[known.description as usize]
                .folder
                .clone()?
        };
        match path.is_empty() {
            true => None,
            false => Some(self.names.resolve(&folder, path, follow)),
        }
    }

    /// Return the number of a name that is used for the first time, perhaps: if it is new, what it
    /// was before is seen from the result.
    fn first_use(&mut self, path: &[u8], event: &Event, kind: FileKind) -> u32 {
        if let Some(name) = self.names.known(path) {
            return name;
        }
        if event.result == -i64::from(libc::ENOENT) {
            return self.names.name(path, || First::missing(kind));
        }
        let found = self.names.look(path);
        self.counts.guessed += 1;
        self.names.name(path, || {
            found.unwrap_or(First {
                kind,
                size: Some(0),
                stored: 0,
            })
        })
    }

    /// Return an operation of an event, without what it concerns.
    fn op(&self, event: &Event, call: Call) -> Op {
        Op {
            thread: 0,
            call,
            positional: false,
            vectors: 1,
            uring: false,
            file: None,
            other: None,
            handle: None,
            offset: 0,
            length: 0,
            result: event.result,
            flags: 0,
            target: None,
            start_ns: event.start_ns.saturating_sub(self.begin_ns),
            duration_ns: event
                .end_ns
                .saturating_sub(event.start_ns.max(self.begin_ns)),
        }
    }

    fn elsewhere(&mut self) -> Result<()> {
        self.counts.elsewhere += 1;
        Ok(())
    }

    fn beyond(&mut self) -> Result<()> {
        self.counts.beyond += 1;
        Ok(())
    }

    /// Put an operation on an open file description.
    fn put_handle(&mut self, event: &Event, description: Option<u32>, op: Op) -> Result<()> {
        let name = description.and_then(|at| self.descriptions[at as usize].name);
        match name {
            Some(name) => self.put_on(event, name, description, op),
            None => self.elsewhere(),
        }
    }

    fn put_on(
        &mut self,
        event: &Event,
        name: u32,
        description: Option<u32>,
        mut op: Op,
    ) -> Result<()> {
        op.file = self.file(name)?;
        if op.file.is_none() || self.thread(event.thread, None, String::new)?.is_none() {
            return self.beyond();
        }
        if let Some(description) = description {
            let (known, next) = (&mut self.descriptions[description as usize], self.handles);
            op.handle = Some(*known.handle.get_or_insert(next));
            if op.handle == Some(next) {
                self.handles += 1;
            }
        }
        match op.call {
            Call::Read | Call::Fault => self.counts.read_bytes += op.result.max(0) as u64,
            Call::Write => self.counts.written_bytes += op.result.max(0) as u64,
            _ => {}
        }
        self.put(event.thread, op)
    }

    fn put(&mut self, task: u32, mut op: Op) -> Result<()> {
        let Some(thread) = self.thread(task, None, String::new)? else {
            return self.beyond();
        };
        op.thread = thread;
        // Two processors may write their events in another order than they took the time.
        let late = self.last_end_ns.saturating_sub(op.end_ns());
        op.duration_ns += late;
        self.last_end_ns = op.end_ns();
        self.writer.op(&op).map_err(unwritten)
    }

    /// Return the number of a name in the trace; None if there are too many.
    fn file(&mut self, name: u32) -> Result<Option<u32>> {
        let known = self.names.get(name);
        if known.id.is_some() {
            return Ok(known.id);
        }
        if self.files >= iotrace::MAX_FILES {
            return Ok(None);
        }
        let id = self.files;
        let record = FileRecord {
            id,
            path: match &self.hash {
                Some(hash) => hash.path(&known.path),
                None => known.path.to_vec(),
            },
            kind: known.kind,
            size: known.size,
            stored: known.stored,
            extents: known.extents,
            position: known.position,
        };
        match self.writer.file(&record) {
            Ok(()) => {}
            // Hashes make it longer.
            Err(error) if matches!(error.problem, Problem::Limit { .. }) => return Ok(None),
            Err(error) => return Err(unwritten(error)),
        }
        self.names.set_id(name, id);
        self.files += 1;
        Ok(Some(id))
    }

    /// Return the number of a task in the trace; None if there are too many. `name`: for one that has
    /// already ended.
    fn thread(
        &mut self,
        number: u32,
        started_by: Option<u32>,
        name: impl FnOnce() -> String,
    ) -> Result<Option<u32>> {
        let Some(task) = self.tasks.get(&number) else {
            return Ok(None);
        };
        if task.thread.is_some() || self.threads >= iotrace::MAX_THREADS {
            return Ok(task.thread);
        }
        let process = task.process;
        let next = self.process_count;
        let dense = *self.processes.entry(process).or_insert(next);
        self.process_count += u32::from(dense == next);
        let found = fs::read_to_string(format!("/proc/{process}/task/{number}/comm"));
        let record = ThreadRecord {
            id: self.threads,
            process: dense,
            started_by,
            name: found.map_or_else(|_| name(), |name| name.trim_end().to_string()),
        };
        self.writer.thread(&record).map_err(unwritten)?;
        if let Some(task) = self.tasks.get_mut(&number) {
            task.thread = Some(record.id);
        }
        self.threads += 1;
        Ok(Some(record.id))
    }
}

fn unwritten(error: iotrace::Error) -> Error {
    match error.problem {
        Problem::Io(cause) => Error::errno("write the trace", cause.raw_os_error().unwrap_or(0)),
        problem => Error::verify(format!("write the trace: {problem}")),
    }
}

/// Return the numbers that are names in a folder of /proc, in order.
pub fn numbers_in(folder: &str) -> Vec<c_int> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut numbers: Vec<c_int> = entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests;
