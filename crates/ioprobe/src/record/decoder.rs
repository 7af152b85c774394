//! Turns the kernel's events into the operations of a trace.
//!
//! What an event does not say is followed here: which open file description each descriptor of each
//! process means (shared by threads, copied by fork, closed by execve), the current folders, and
//! names. Descriptions are also known by the address of the kernel's open file, so a descriptor that
//! came another way, or whose open was lost, is still the right one.
//!
//! Memory is bounded by what the application has open at a time, and by the number of names.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::rc::Rc;

use iotrace::{Call, FileKind, FileRecord, Op, Problem, ThreadRecord, Writer};
use libc::c_int;

use super::calls;
use super::names::{First, NameHash, Names, Place};
use crate::error::{Error, Result};
use crate::trace::bpf::recorder::{uring, Event, Kind, Opened, UringWords};

/// Ended processes for which nobody has waited yet.
const MOST_ENDED: usize = 1 << 16;
const AT_EMPTY_PATH: u64 = 0x1000;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_FOLLOW: u64 = 0x400;
const O_CLOEXEC: u64 = libc::O_CLOEXEC as u64;
/// __O_TMPFILE (include/uapi/asm-generic/fcntl.h)
const O_TMPFILE: u64 = 0o20_000_000;
/// The ioctl that sets close-on-exec (include/uapi/asm-generic/ioctls.h).
const FIOCLEX: u64 = 0x5451;
const PAGE: u64 = 4096;

/// What was counted, besides the operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations on other files, pipes and sockets.
    pub elsewhere: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Files whose state before the start could only be guessed.
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

pub struct Decoder<W: Write> {
    pub writer: Writer<W>,
    pub names: Names,
    pub counts: Counts,
    hash: Option<NameHash>,
    uring: Option<UringWords>,
    /// When the recording began, on the kernel's clock. What ended before is not in it.
    begin_ns: u64,
    /// The task whose execve begins the recording.
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
            _ => self.call(event),
        }
    }

    /// A thread whose start was not seen: it is like the others of its process.
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
        // execve gives the task a table of its own.
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

    fn fault(&mut self, event: &Event) -> Result<()> {
        let [device, inode, page, ..] = event.arguments;
        // Those of programs and libraries are no operations of the application.
        let Some(name) = self.names.of_inode((device as u32, inode)) else {
            return Ok(());
        };
        let op = Op {
            positional: true,
            offset: page * PAGE,
            length: PAGE,
            result: PAGE as i64,
            ..self.op(event, Call::Fault)
        };
        self.put_on(event, name, None, op)
    }

    fn uring(&mut self, event: &Event) -> Result<()> {
        const FIXED_FILE: u64 = 1;
        const DATA_ONLY: u64 = 1;
        let Some(words) = self.uring else {
            return Ok(());
        };
        let word = |at: usize, bytes: usize| {
            let mut value = [0; 8];
            if let Some(found) = event.command.get(at..at + bytes) {
                value[..bytes].copy_from_slice(found);
            }
            u64::from_le_bytes(value)
        };
        let [number, flags, ..] = event.arguments;
        if event.number == uring::CLOSE {
            // struct io_close: the file, the descriptor, and the place of a registered file.
            return match (event.result, word(12, 4)) {
                (0, 0) => self.close(event, word(8, 4) as c_int),
                _ => Ok(()),
            };
        }
        let description = match self.by_file.get(&event.file) {
            Some(known) => Some(*known),
            None if flags & FIXED_FILE != 0 => None,
            None => self.description(event, number as c_int),
        };
        let (call, vector) = match event.number {
            uring::READV => (Call::Read, true),
            uring::WRITEV => (Call::Write, true),
            uring::READ | uring::READ_FIXED => (Call::Read, false),
            uring::WRITE | uring::WRITE_FIXED => (Call::Write, false),
            _ => match word(words.sync_flags, 4) & DATA_ONLY {
                0 => (Call::Fsync, false),
                _ => (Call::Fdatasync, false),
            },
        };
        let mut op = Op {
            uring: true,
            ..self.op(event, call)
        };
        if matches!(call, Call::Read | Call::Write) {
            let moved = event.result.max(0) as u64;
            let (position, length) = (word(words.position, 8), word(words.length, 4));
            op.positional = position != u64::MAX;
            op.offset = match description {
                _ if op.positional => position,
                Some(known) => self.moved(known, moved),
                None => 0,
            };
            (op.length, op.vectors) = match vector {
                true => (moved, length.min(u16::MAX.into()) as u16),
                false => (length, 1),
            };
        }
        self.put_handle(event, description, op)
    }

    fn call(&mut self, event: &Event) -> Result<()> {
        use calls::*;
        let a = event.arguments;
        let first = a[0] as c_int;
        match event.number {
            READ | WRITE | PREAD64 | PWRITE64 | READV | WRITEV | PREADV | PWRITEV | PREADV2
            | PWRITEV2 => self.transfer(event),
            OPEN => self.open(event, libc::AT_FDCWD, a[1]),
            CREAT => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.open(event, libc::AT_FDCWD, flags as u64)
            }
            OPENAT => self.open(event, first, a[2]),
            OPENAT2 => self.open(event, first, a[3]),
            CLOSE => self.close(event, first),
            CLOSE_RANGE => self.close_range(event),
            DUP | DUP2 | DUP3 | FCNTL => self.duplicate(event),
            IOCTL if event.result == 0 => {
                self.close_on_exec(event, a[1] == FIOCLEX);
                Ok(())
            }
            LSEEK => {
                if let (Some(known), 0..) = (self.description(event, first), event.result) {
                    self.descriptions[known as usize].position = event.result as u64;
                }
                Ok(())
            }
            FSYNC => self.on_descriptor(event, Call::Fsync, [0, 0, 0]),
            FDATASYNC => self.on_descriptor(event, Call::Fdatasync, [0, 0, 0]),
            SYNC_FILE_RANGE => self.on_descriptor(event, Call::SyncFileRange, [a[1], a[2], a[3]]),
            SYNCFS => self.on_descriptor(event, Call::Sync, [0, 0, 0]),
            SYNC => {
                let op = self.op(event, Call::Sync);
                self.put(event.thread, op)
            }
            FTRUNCATE => self.on_descriptor(event, Call::Truncate, [0, a[1], 0]),
            FALLOCATE => self.on_descriptor(event, Call::Allocate, [a[2], a[3], a[1]]),
            FADVISE64 => self.on_descriptor(event, Call::Advise, [a[1], a[2], a[3]]),
            FSTAT => self.on_descriptor(event, Call::Stat, [0, 0, 0]),
            GETDENTS | GETDENTS64 => self.on_descriptor(event, Call::ReadDir, [0, a[2], 0]),
            MMAP => self.map(event),
            SENDFILE | SPLICE | COPY_FILE_RANGE => self.copy(event),
            STAT | ACCESS => self.stat(event, libc::AT_FDCWD, true, false),
            LSTAT => self.stat(event, libc::AT_FDCWD, false, false),
            FACCESSAT => self.stat(event, first, true, false),
            FACCESSAT2 | NEWFSTATAT => self.stat(
                event,
                first,
                a[3] & AT_SYMLINK_NOFOLLOW == 0,
                a[3] & AT_EMPTY_PATH != 0,
            ),
            STATX => self.stat(
                event,
                first,
                a[2] & AT_SYMLINK_NOFOLLOW == 0,
                a[2] & AT_EMPTY_PATH != 0,
            ),
            TRUNCATE => {
                let op = Op {
                    length: a[1],
                    ..self.op(event, Call::Truncate)
                };
                self.on_path(event, libc::AT_FDCWD, true, FileKind::Regular, op)
            }
            MKDIR => self.make_folder(event, libc::AT_FDCWD),
            MKDIRAT => self.make_folder(event, first),
            RMDIR => self.unlink(event, libc::AT_FDCWD, true),
            UNLINK => self.unlink(event, libc::AT_FDCWD, false),
            UNLINKAT => self.unlink(event, first, a[2] & AT_REMOVEDIR != 0),
            RENAME => self.rename(event, [libc::AT_FDCWD; 2], 0),
            RENAMEAT => self.rename(event, [first, a[2] as c_int], 0),
            RENAMEAT2 => self.rename(event, [first, a[2] as c_int], a[4]),
            LINK => self.link(event, [libc::AT_FDCWD; 2], 0),
            LINKAT => self.link(event, [first, a[2] as c_int], a[4]),
            SYMLINK => self.symbolic_link(event, libc::AT_FDCWD),
            SYMLINKAT => self.symbolic_link(event, a[1] as c_int),
            CHDIR | FCHDIR => {
                self.change_folder(event);
                Ok(())
            }
            WAIT4 => self.waited(event, event.result as u32),
            WAITID if a[0] == libc::P_PID as u64 => self.waited(event, a[1] as u32),
            _ => Ok(()),
        }
    }

    fn transfer(&mut self, event: &Event) -> Result<()> {
        use calls::*;
        let a = event.arguments;
        let reads = matches!(event.number, READ | PREAD64 | READV | PREADV | PREADV2);
        let description = self.description(event, a[0] as c_int);
        let moved = event.result.max(0) as u64;
        let positional = match event.number {
            PREAD64 | PWRITE64 | PREADV | PWRITEV => true,
            PREADV2 | PWRITEV2 => a[3] != u64::MAX,
            _ => false,
        };
        let offset = match description {
            _ if positional => a[3],
            None => 0,
            Some(known) if event.file == 0 => self.moved(known, moved),
            Some(known) => {
                // The kernel knows where an append went.
                self.descriptions[known as usize].position = event.position;
                event.position.saturating_sub(moved)
            }
        };
        let (length, vectors) = match event.number {
            READ | WRITE | PREAD64 | PWRITE64 => (a[2], 1),
            _ if a[1] == u64::MAX => (moved, a[2]),
            _ => (a[1], a[2]),
        };
        let op = Op {
            positional,
            vectors: vectors.min(u16::MAX.into()) as u16,
            offset,
            length,
            ..self.op(event, if reads { Call::Read } else { Call::Write })
        };
        self.put_handle(event, description, op)
    }

    /// Return a description's position, and move it on.
    fn moved(&mut self, description: u32, by: u64) -> u64 {
        let position = &mut self.descriptions[description as usize].position;
        let before = *position;
        *position = before.saturating_add(by);
        before
    }

    fn open(&mut self, event: &Event, folder: c_int, flags: u64) -> Result<()> {
        let follow = flags & libc::O_NOFOLLOW as u64 == 0
            && flags & (libc::O_CREAT | libc::O_EXCL) as u64
                != (libc::O_CREAT | libc::O_EXCL) as u64;
        let mut place = self.place(event.thread, folder, event.paths[0], follow);
        let mut op = Op {
            flags: flags as u32,
            result: event.result.min(0),
            ..self.op(event, Call::Open)
        };
        if event.result < 0 {
            return match place {
                Some(Place::Inside(path)) => {
                    let name = self.first_use(&path, event, FileKind::Regular);
                    self.put_on(event, name, None, op)
                }
                _ => self.elsewhere(),
            };
        }
        let opened = event.opened.map(|found| Opened {
            created: found.created || flags & O_TMPFILE != 0,
            ..found
        });
        let kind = opened.map_or(libc::S_IFREG, |found| found.mode & libc::S_IFMT);
        let data = matches!(kind, libc::S_IFREG | libc::S_IFDIR);
        if flags & O_TMPFILE != 0 {
            // A file without a name: it gets one here.
            if let Some(Place::Inside(folder)) = &mut place {
                let name = format!(".tmpfile-{}", self.temporary);
                self.temporary += 1;
                *folder = super::names::joined(folder, name.as_bytes());
                let unnamed = (O_TMPFILE | libc::O_DIRECTORY as u64) as u32;
                op.flags = op.flags & !unnamed | (libc::O_CREAT | libc::O_EXCL) as u32;
            }
        } else if let Some(found) = opened {
            place = self.corrected(place, found);
        }
        let (name, absolute) = match place {
            Some(Place::Inside(path)) if data => {
                let name = self.opened(&path, opened, flags);
                (Some(name), Some(self.names.absolute(&path)))
            }
            Some(Place::Inside(_)) | None => (None, None),
            Some(Place::Outside(path)) => (None, Some(path)),
        };
        let description = self.describe(Description {
            name,
            folder: absolute.filter(|_| kind == libc::S_IFDIR),
            file: event.file,
            position: 0,
            descriptors: 0,
            handle: None,
        });
        let close_on_exec = flags & O_CLOEXEC != 0;
        self.assign(event, event.result as c_int, description, close_on_exec)?;
        self.put_handle(event, Some(description), op)
    }

    /// Prefer what the kernel found to where the text of a path led.
    fn corrected(&self, place: Option<Place>, found: Opened) -> Option<Place> {
        let inode = (found.device, found.inode);
        if let Some(Place::Inside(path)) = &place {
            match self
                .names
                .known(path)
                .and_then(|name| self.names.inode(name))
            {
                Some(known) if known != inode => {}
                // New, or as expected; perhaps a second name of the same file.
                _ => return place,
            }
        }
        match self.names.of_inode(inode) {
            Some(name) => Some(Place::Inside(self.names.get(name).path.to_vec())),
            None => place,
        }
    }

    /// Return the name of an opened file, and learn what the kernel says of it.
    fn opened(&mut self, path: &[u8], found: Option<Opened>, flags: u64) -> u32 {
        let truncated = flags & libc::O_TRUNC as u64 != 0;
        let mut guessed = false;
        let name = match found {
            None => self.names.name(path, || First::missing(FileKind::Regular)),
            Some(found) => {
                let kind = match found.mode & libc::S_IFMT {
                    libc::S_IFDIR => FileKind::Directory,
                    _ => FileKind::Regular,
                };
                self.names.name(path, || {
                    guessed = truncated && !found.created;
                    let file = kind == FileKind::Regular;
                    First {
                        kind,
                        size: (!found.created).then_some(if file { found.size } else { 0 }),
                        stored: if found.created { 0 } else { found.stored },
                    }
                })
            }
        };
        self.counts.guessed += u64::from(guessed);
        if let Some(found) = found {
            self.names.set_inode(name, (found.device, found.inode));
        }
        name
    }

    fn close(&mut self, event: &Event, number: c_int) -> Result<()> {
        let table = self.table(event.thread);
        let known = table.borrow().get(&number).copied();
        let Some(descriptor) = known else {
            return Ok(());
        };
        // A close of another thread that had begun before the number was used again.
        let file = self.descriptions[descriptor.description as usize].file;
        if event.file != 0 && file != 0 && file != event.file {
            return Ok(());
        }
        table.borrow_mut().remove(&number);
        self.released(event, descriptor.description)
    }

    fn close_range(&mut self, event: &Event) -> Result<()> {
        const CLOSE_RANGE_CLOEXEC: u64 = 4;
        let [first, last, flags, ..] = event.arguments;
        if event.result != 0 {
            return Ok(());
        }
        let table = self.table(event.thread);
        let within = |number: &c_int| (first as u32..=last as u32).contains(&(*number as u32));
        let mut numbers: Vec<_> = table.borrow().keys().copied().filter(within).collect();
        numbers.sort_unstable();
        for number in numbers {
            if flags & CLOSE_RANGE_CLOEXEC != 0 {
                if let Some(descriptor) = table.borrow_mut().get_mut(&number) {
                    descriptor.close_on_exec = true;
                }
                continue;
            }
            let removed = table.borrow_mut().remove(&number);
            if let Some(descriptor) = removed {
                self.released(event, descriptor.description)?;
            }
        }
        Ok(())
    }

    fn duplicate(&mut self, event: &Event) -> Result<()> {
        use calls::*;
        let [old, second, third, ..] = event.arguments;
        let old = old as c_int;
        if event.result < 0 {
            return Ok(());
        }
        if (event.number, second as c_int) == (FCNTL, libc::F_SETFD) {
            self.close_on_exec(event, third & libc::FD_CLOEXEC as u64 != 0);
            return Ok(());
        }
        let new = event.result as c_int;
        if new == old {
            return Ok(());
        }
        let close_on_exec = match event.number {
            DUP3 => third & O_CLOEXEC != 0,
            FCNTL => second as c_int == libc::F_DUPFD_CLOEXEC,
            _ => false,
        };
        match self.description(event, old) {
            Some(description) => self.assign(event, new, description, close_on_exec),
            None => Ok(()),
        }
    }

    fn close_on_exec(&mut self, event: &Event, set: bool) {
        let table = self.table(event.thread);
        if let Some(descriptor) = table.borrow_mut().get_mut(&(event.arguments[0] as c_int)) {
            descriptor.close_on_exec = set;
        };
    }

    fn map(&mut self, event: &Event) -> Result<()> {
        let [_, length, protection, _, number, offset] = event.arguments;
        let description = self.description(event, number as c_int);
        let op = Op {
            positional: true,
            offset,
            length,
            flags: protection as u32,
            // It returns an address, or one of the last 4095 numbers.
            result: if (-4095..0).contains(&event.result) {
                event.result
            } else {
                0
            },
            ..self.op(event, Call::Map)
        };
        self.put_handle(event, description, op)
    }

    fn copy(&mut self, event: &Event) -> Result<()> {
        use calls::*;
        let a = event.arguments;
        let moved = event.result.max(0) as u64;
        let (from, from_offset, to, to_offset, length) = match event.number {
            SENDFILE => (a[1], a[2], a[0], u64::MAX, a[3]),
            _ => (a[0], a[1], a[2], a[3], a[4]),
        };
        let from = self.description(event, from as c_int);
        let other = Event {
            file: 0,
            ..event.clone()
        };
        let to = self.description(&other, to as c_int);
        if let (Some(known), u64::MAX) = (from, from_offset) {
            if event.file != 0 {
                self.descriptions[known as usize].position = event.position.saturating_sub(moved);
            }
        }
        let mut place = |description: Option<u32>, offset: u64| match (offset, description) {
            (u64::MAX, Some(known)) => (false, self.moved(known, moved)),
            (u64::MAX, None) => (false, 0),
            // The call has moved it on.
            (offset, _) => (true, offset.saturating_sub(moved)),
        };
        let (from_given, from_offset) = place(from, from_offset);
        let (to_given, to_offset) = place(to, to_offset);
        let name = |known: Option<u32>| known.and_then(|at| self.descriptions[at as usize].name);
        let (source, target) = (name(from), name(to));
        let (handle, call, positional, offset) = match (source, target) {
            (None, Some(_)) => (to, Call::Write, to_given, to_offset),
            (_, Some(_)) => (from, Call::Copy, from_given, from_offset),
            (_, None) => (from, Call::Send, from_given, from_offset),
        };
        let mut op = Op {
            positional,
            offset,
            length,
            ..self.op(event, call)
        };
        if let (Call::Copy, Some(target)) = (call, target) {
            op.other = self.file(target)?;
        }
        self.put_handle(event, handle, op)
    }

    fn on_descriptor(&mut self, event: &Event, call: Call, values: [u64; 3]) -> Result<()> {
        let [offset, length, flags] = values;
        let description = self.description(event, event.arguments[0] as c_int);
        let op = Op {
            positional: matches!(call, Call::SyncFileRange | Call::Allocate | Call::Advise),
            offset,
            length,
            flags: flags as u32,
            ..self.op(event, call)
        };
        self.put_handle(event, description, op)
    }

    fn stat(&mut self, event: &Event, folder: c_int, follow: bool, empty: bool) -> Result<()> {
        let op = self.op(event, Call::Stat);
        if empty && event.paths[0].is_empty() && folder != libc::AT_FDCWD {
            let description = self.description(event, folder);
            return self.put_handle(event, description, op);
        }
        self.on_path(event, folder, follow, FileKind::Regular, op)
    }

    /// Put an operation on the first path of an event. `kind`: of the file, if it is not known.
    fn on_path(
        &mut self,
        event: &Event,
        folder: c_int,
        follow: bool,
        kind: FileKind,
        op: Op,
    ) -> Result<()> {
        match self.place(event.thread, folder, event.paths[0], follow) {
            Some(Place::Inside(path)) => {
                let name = self.first_use(&path, event, kind);
                self.put_on(event, name, None, op)
            }
            _ => self.elsewhere(),
        }
    }

    fn make_folder(&mut self, event: &Event, folder: c_int) -> Result<()> {
        let op = self.op(event, Call::Mkdir);
        match self.place(event.thread, folder, event.paths[0], false) {
            Some(Place::Inside(path)) => {
                let name = match event.result {
                    0 => self
                        .names
                        .name(&path, || First::missing(FileKind::Directory)),
                    _ => self.first_use(&path, event, FileKind::Directory),
                };
                self.put_on(event, name, None, op)
            }
            _ => self.elsewhere(),
        }
    }

    fn unlink(&mut self, event: &Event, folder: c_int, of_folder: bool) -> Result<()> {
        let (call, kind) = match of_folder {
            true => (Call::Rmdir, FileKind::Directory),
            false => (Call::Unlink, FileKind::Regular),
        };
        let op = self.op(event, call);
        match self.place(event.thread, folder, event.paths[0], false) {
            Some(Place::Inside(path)) => {
                let name = self.first_use(&path, event, kind);
                self.put_on(event, name, None, op)?;
                if event.result == 0 {
                    self.names.removed(name);
                }
                Ok(())
            }
            _ => self.elsewhere(),
        }
    }

    fn rename(&mut self, event: &Event, folders: [c_int; 2], flags: u64) -> Result<()> {
        const RENAME_EXCHANGE: u64 = 2;
        let from = self.place(event.thread, folders[0], event.paths[0], false);
        let to = self.place(event.thread, folders[1], event.paths[1], false);
        let mut op = Op {
            flags: flags as u32,
            ..self.op(event, Call::Rename)
        };
        let from = match from {
            Some(Place::Inside(path)) => Some(self.first_use(&path, event, FileKind::Regular)),
            _ => None,
        };
        let to = match (to, event.result) {
            (Some(Place::Inside(path)), 0) => {
                Some(self.names.name(&path, || First::missing(FileKind::Regular)))
            }
            (Some(Place::Inside(path)), _) => Some(self.first_use(&path, event, FileKind::Regular)),
            _ => None,
        };
        let (Some(old), Some(new)) = (from, to) else {
            // Moved into the folder, or out of it.
            return match from.or(to) {
                None => self.elsewhere(),
                Some(name) => {
                    if event.result == 0 && from.is_some() {
                        self.names.removed(name);
                    }
                    let call = match from.is_some() {
                        true => Call::Unlink,
                        false => Call::Link,
                    };
                    op.call = call;
                    op.flags = 0;
                    match call {
                        Call::Unlink => self.put_on(event, name, None, op),
                        _ => self.elsewhere(),
                    }
                }
            };
        };
        if event.result == 0 && flags & RENAME_EXCHANGE == 0 && old != new {
            // What is in a renamed folder was there under its old name.
            for (before, _) in self.names.renamed(old, new) {
                self.file(before)?;
            }
        }
        let (first, second) = (self.file(old)?, self.file(new)?);
        op.other = second;
        match first.is_some() && second.is_some() {
            true => self.put_on(event, old, None, op),
            false => self.beyond(),
        }
    }

    fn link(&mut self, event: &Event, folders: [c_int; 2], flags: u64) -> Result<()> {
        let follow = flags & AT_SYMLINK_FOLLOW != 0;
        let (old, new) = (event.paths[0], event.paths[1]);
        // The name of a descriptor, for files that were opened without one.
        let descriptor = match old.is_empty() && flags & AT_EMPTY_PATH != 0 {
            true => Some(folders[0]),
            false => (old.strip_prefix(b"/proc/self/fd/"))
                .and_then(|number| std::str::from_utf8(number).ok()?.parse().ok()),
        };
        let from = match descriptor {
            Some(number) => {
                let known = self.description(event, number);
                known.and_then(|at| self.descriptions[at as usize].name)
            }
            None => match self.place(event.thread, folders[0], old, follow) {
                Some(Place::Inside(path)) => Some(self.first_use(&path, event, FileKind::Regular)),
                _ => None,
            },
        };
        let to = self.place(event.thread, folders[1], new, false);
        let (Some(from), Some(Place::Inside(path))) = (from, to) else {
            return self.elsewhere();
        };
        let kind = self.names.get(from).kind;
        let to = match event.result {
            0 => self.names.name(&path, || First::missing(kind)),
            _ => self.first_use(&path, event, kind),
        };
        let op = Op {
            other: self.file(to)?,
            ..self.op(event, Call::Link)
        };
        self.put_on(event, from, None, op)
    }

    fn symbolic_link(&mut self, event: &Event, folder: c_int) -> Result<()> {
        let op = self.op(event, Call::Symlink);
        match self.place(event.thread, folder, event.paths[1], false) {
            Some(Place::Inside(path)) => {
                let name = match event.result {
                    0 => self.names.name(&path, || First::missing(FileKind::Link)),
                    _ => self.first_use(&path, event, FileKind::Link),
                };
                if event.result == 0 {
                    self.names.link(&path, event.paths[0]);
                }
                self.put_on(event, name, None, op)
            }
            _ => self.elsewhere(),
        }
    }

    fn change_folder(&mut self, event: &Event) {
        if event.result != 0 {
            return;
        }
        let folder = match event.number {
            calls::CHDIR => match self.place(event.thread, libc::AT_FDCWD, event.paths[0], true) {
                Some(Place::Inside(path)) => Some(self.names.absolute(&path)),
                Some(Place::Outside(path)) => Some(path),
                None => None,
            },
            _ => {
                let known = self.description(event, event.arguments[0] as c_int);
                known.and_then(|at| self.descriptions[at as usize].folder.clone())
            }
        };
        if let (Some(folder), Some(task)) = (folder, self.tasks.get(&event.thread)) {
            task.folder.replace(folder);
        }
    }

    fn waited(&mut self, event: &Event, process: u32) -> Result<()> {
        if event.result < 0 {
            return Ok(());
        }
        match self.ended.remove(&process) {
            Some(thread) => {
                let op = Op {
                    other: Some(thread),
                    result: 0,
                    ..self.op(event, Call::Wait)
                };
                self.put(event.thread, op)
            }
            None => Ok(()),
        }
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

    fn table(&self, thread: u32) -> Rc<RefCell<Descriptors>> {
        (self.tasks.get(&thread)).map_or_else(Rc::default, |task| task.descriptors.clone())
    }

    /// Return the description that a descriptor of the calling task means.
    fn description(&mut self, event: &Event, number: c_int) -> Option<u32> {
        if number < 0 {
            return None;
        }
        let table = self.table(event.thread);
        let known = table.borrow().get(&number).copied();
        if let Some(descriptor) = known {
            let known = &mut self.descriptions[descriptor.description as usize];
            if event.file == 0 || known.file == event.file {
                return Some(descriptor.description);
            }
            if known.file == 0 && !self.by_file.contains_key(&event.file) {
                known.file = event.file;
                self.by_file.insert(event.file, descriptor.description);
                return Some(descriptor.description);
            }
        }
        if event.file == 0 || event.result == -i64::from(libc::EBADF) {
            return None;
        }
        // It has come another way: from another process, by a call that is not recorded, or its
        // open was lost.
        let found = match self.by_file.get(&event.file).copied() {
            Some(description) => {
                self.take(number, description, &table, false);
                description
            }
            None => self.adopt_descriptor(event.process, number, event.file, &table),
        };
        if let Some(before) = known {
            self.forget(before.description);
        }
        Some(found)
    }

    /// Learn from /proc what a descriptor means.
    fn adopt_descriptor(
        &mut self,
        process: u32,
        number: c_int,
        file: u64,
        table: &Rc<RefCell<Descriptors>>,
    ) -> u32 {
        let own = format!("/proc/{process}/fd/{number}");
        let found = fs::metadata(&own).ok();
        let path = fs::read_link(&own).map(|path| path.into_os_string().into_vec());
        let info = fs::read_to_string(format!("/proc/{process}/fdinfo/{number}"));
        let info = info.unwrap_or_default();
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim())
        };
        let position = field("pos:").and_then(|text| text.parse().ok());
        let flags = field("flags:").and_then(|text| u64::from_str_radix(text, 8).ok());
        let data = found
            .as_ref()
            .is_some_and(|found| found.is_file() || found.is_dir());
        let path = path.ok().filter(|path| data && path.starts_with(b"/"));
        let inside = path.as_deref().and_then(|path| self.names.relative(path));
        let inside = inside.map(<[u8]>::to_vec);
        let name = inside.map(|path| match self.names.look(&path) {
            Some(first) => self.names.name(&path, || first),
            // It has been removed: some other name, for one that is gone.
            None => {
                self.counts.guessed += 1;
                let size = found.as_ref().map(|found| found.len());
                self.names.name(&path, || First {
                    kind: FileKind::Regular,
                    size,
                    stored: size.unwrap_or(0),
                })
            }
        });
        let is_folder = found.is_some_and(|found| found.is_dir());
        let description = self.describe(Description {
            name,
            folder: path.filter(|_| is_folder),
            file,
            position: position.unwrap_or(0),
            descriptors: 0,
            handle: None,
        });
        let close_on_exec = flags.is_some_and(|flags| flags & O_CLOEXEC != 0);
        self.take(number, description, table, close_on_exec);
        description
    }

    fn describe(&mut self, description: Description) -> u32 {
        let file = description.file;
        let index = match self.free.pop() {
            Some(index) => {
                self.descriptions[index as usize] = description;
                index
            }
            None => {
                self.descriptions.push(description);
                self.descriptions.len() as u32 - 1
            }
        };
        if file != 0 {
            self.by_file.insert(file, index);
        }
        index
    }

    /// Let a descriptor mean a description; returns what it meant before.
    fn take(
        &mut self,
        number: c_int,
        description: u32,
        table: &Rc<RefCell<Descriptors>>,
        close_on_exec: bool,
    ) -> Option<Descriptor> {
        self.descriptions[description as usize].descriptors += 1;
        table.borrow_mut().insert(
            number,
            Descriptor {
                description,
                close_on_exec,
            },
        )
    }

    fn assign(
        &mut self,
        event: &Event,
        number: c_int,
        description: u32,
        close_on_exec: bool,
    ) -> Result<()> {
        let table = self.table(event.thread);
        match self.take(number, description, &table, close_on_exec) {
            Some(before) => self.released(event, before.description),
            None => Ok(()),
        }
    }

    /// A descriptor is gone. With the last one, the description is closed.
    fn released(&mut self, event: &Event, description: u32) -> Result<()> {
        let known = &self.descriptions[description as usize];
        // What was open before and never used has no open in the trace.
        let shown = known.handle.is_some() && event.end_ns >= self.begin_ns;
        if known.descriptors <= 1 && shown {
            let op = Op {
                result: 0,
                ..self.op(event, Call::Close)
            };
            self.put_handle(event, Some(description), op)?;
        }
        self.forget(description);
        Ok(())
    }

    fn forget(&mut self, description: u32) {
        let known = &mut self.descriptions[description as usize];
        known.descriptors = known.descriptors.saturating_sub(1);
        if known.descriptors == 0 {
            if self.by_file.get(&known.file) == Some(&description) {
                self.by_file.remove(&known.file);
            }
            self.free.push(description);
        }
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
