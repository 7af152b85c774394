//! The programs that record file operations, and the events that they write.
//!
//! A call is timed from its entry to its exit, and written at its exit: then the paths that it was
//! given are in memory, and the descriptor that it returned is open. What the call's arguments
//! do not say is read from the kernel: which open file a descriptor was, where that file's position is
//! now, and which inode an open found. Which calls are recorded, and how, is in a table by number,
//! so that all other calls leave after one look-up.
//!
//! The programs never wake the reader: it comes by itself, many times a second.

use std::os::unix::io::{AsRawFd, OwnedFd};

use super::assembler::{Assembler, Helper, If, Instruction, Operation, Register, Size};
use super::event::{at, Kind};
use super::kernel::{load_types, Map, MapKind, MapShape, Program};
use super::programs::{storage, storage_of_this_task, StorageOf};
use super::ring::Ring;
use super::types::{self, Types};
use crate::error::{Error, Result};
use crate::trace::{arch, processors};

use Helper::{
    CurrentName, CurrentNumbers, MapDelete, MapLookup, MapUpdate, ReadKernel, ReadUser,
    ReadUserText, RingOutput, TimeNs,
};
use If::{Above, Any, AtLeast, Equal, NotEqual, SignedAtLeast, SignedBelow};
use Operation::{Add, And, Move, ShiftLeft, ShiftRight, ShiftRightSigned};
use Register::{R0, R1, R10, R2, R3, R4, R6, R7, R8, R9};
use Size::{Eight, Four, One};

/// Numbers of system calls, for all tables.
pub const CALLS: u32 = 512;
/// Processes that are recorded from the start.
const TARGETS: u32 = 4096;
/// Requests of io_uring in flight.
const REQUESTS: u32 = 1 << 14;

/// How a call is recorded. The first four bits are the `KIND`; then come the numbers of two
/// arguments, from 1, that are paths or point to offsets; then that of the descriptor, or 0 for the
/// result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form(u32);

const KIND: i32 = 15;
const FIRST: i32 = 4;
const SECOND: i32 = 8;
const DESCRIPTOR: i32 = 12;
const HAS_DESCRIPTOR: i32 = 1 << 16;
/// The open file's position is needed as well.
const HAS_POSITION: i32 = 1 << 17;

const PLAIN: i32 = 1;
/// Arguments 2 and 3 are a vector of buffers: the second becomes the sum of their lengths.
const VECTOR: i32 = 2;
/// Arguments that point to offsets become these.
const OFFSETS: i32 = 3;
const PATHS: i32 = 4;
const OPEN: i32 = 5;
/// Argument 4 becomes the flags that argument 3 points to.
const OPENAT2: i32 = 6;
/// The descriptor is looked up on entry: on exit it is gone.
const CLOSE: i32 = 7;
const FCNTL: i32 = 8;
const MMAP: i32 = 9;
const IOCTL: i32 = 10;
/// Argument 3 is a vector of pointers to as many requests (struct iocb) as the result says.
const SUBMIT: i32 = 11;
/// Argument 4 are as many results (struct io_event) as the result says.
const REAP: i32 = 12;

impl Form {
    const fn of(kind: i32) -> Self {
        Form(kind as u32)
    }

    const fn descriptor(self, argument: u32) -> Self {
        Form(self.0 | argument << DESCRIPTOR | HAS_DESCRIPTOR as u32)
    }

    const fn position(self) -> Self {
        Form(self.0 | HAS_POSITION as u32)
    }

    const fn arguments(self, first: u32, second: u32) -> Self {
        Form(self.0 | first << FIRST | second << SECOND)
    }

    /// A call without a descriptor, or one with descriptors that the reader follows itself.
    pub const PLAIN: Form = Form::of(PLAIN);
    pub const CLOSE: Form = Form::of(CLOSE);
    pub const FCNTL: Form = Form::of(FCNTL).descriptor(1);
    pub const IOCTL: Form = Form::of(IOCTL).descriptor(1);
    pub const SUBMIT: Form = Form::of(SUBMIT);
    pub const REAP: Form = Form::of(REAP);
    pub const MMAP: Form = Form::of(MMAP).descriptor(5);
    pub const VECTOR: Form = Form::of(VECTOR).descriptor(1).position();
    pub const OPENAT2: Form = Form::of(OPENAT2).descriptor(0).arguments(2, 0);

    pub const fn file(argument: u32) -> Form {
        Form::of(PLAIN).descriptor(argument)
    }

    /// A call that moves the position of its open file.
    pub const MOVING: Form = Form::of(PLAIN).descriptor(1).position();

    pub const fn offsets(descriptor: u32, first: u32, second: u32) -> Form {
        Form::of(OFFSETS)
            .descriptor(descriptor)
            .position()
            .arguments(first, second)
    }

    pub const fn path(first: u32) -> Form {
        Form::of(PATHS).arguments(first, 0)
    }

    pub const fn paths(first: u32, second: u32) -> Form {
        Form::of(PATHS).arguments(first, second)
    }

    /// A path relative to a descriptor, which it may also mean by itself.
    pub const fn path_at(descriptor: u32, path: u32) -> Form {
        Form::of(PATHS).descriptor(descriptor).arguments(path, 0)
    }

    pub const fn open(path: u32) -> Form {
        Form::of(OPEN).descriptor(0).arguments(path, 0)
    }
}

/// Storage of a task: when its current call began (0: in no call that is recorded), the open file
/// of a close, the call's number, and its form.
const TASK_WORDS: u32 = 6;
const BEGAN: i16 = 0;
const CLOSING: i16 = 8;
const NUMBER: i16 = 16;
const FORM: i16 = 20;

const PATH_BYTES: i32 = 4096;
const SCRATCH_BYTES: u32 = at::PATHS as u32 + 2 * PATH_BYTES as u32;
/// The number of buffers of a vector up to which their lengths are added up.
const MOST_BUFFERS: i32 = 8;

/// Where events are put together on the stack, and the words there that programs use besides.
const EVENT: i16 = -128;
const URING_EVENT: i16 = -24 - at::URING;
const REQUEST: i16 = URING_EVENT - 8;
const KEY: i16 = -4;
const PROCESS: i16 = -8;
const WORD: i16 = -16;
const START: i16 = -24;

/// Offsets in kernel structures that the programs read.
struct Offsets {
    status: i16,
    thread: i16,
    process: i16,
    files: i16,
    table: i16,
    slots: i16,
    most_slots: i16,
    arguments: [i16; 6],
    file_mode: i16,
    file_inode: i16,
    file_position: i16,
    inode_mode: i16,
    inode_number: i16,
    inode_size: i16,
    inode_blocks: i16,
    inode_file_system: i16,
    device: i16,
}

impl Offsets {
    fn of(types: &Types) -> Result<Self> {
        Ok(Offsets {
            status: arch::task_status(types)?,
            thread: types.offset("task_struct", "pid")?,
            process: types.offset("task_struct", "tgid")?,
            files: types.offset("task_struct", "files")?,
            table: types.offset("files_struct", "fdt")?,
            slots: types.offset("fdtable", "fd")?,
            most_slots: types.offset("fdtable", "max_fds")?,
            arguments: arch::arguments(types)?,
            file_mode: types.offset("file", "f_mode")?,
            file_inode: types.offset("file", "f_inode")?,
            file_position: types.offset("file", "f_pos")?,
            inode_mode: types.offset("inode", "i_mode")?,
            inode_number: types.offset("inode", "i_ino")?,
            inode_size: types.offset("inode", "i_size")?,
            inode_blocks: types.offset("inode", "i_blocks")?,
            inode_file_system: types.offset("inode", "i_sb")?,
            device: types.offset("super_block", "s_dev")?,
        })
    }
}

/// Offsets of an io_uring request.
struct UringOffsets {
    operation: i16,
    flags: i16,
    file: i16,
    descriptor: i16,
    result: i16,
    command: i16,
}

impl UringOffsets {
    fn of(types: &Types) -> Result<Self> {
        let completion = types.offset("io_kiocb", "cqe")?;
        Ok(UringOffsets {
            operation: types.offset("io_kiocb", "opcode")?,
            flags: types.offset("io_kiocb", "flags")?,
            file: types.offset("io_kiocb", "file")?,
            descriptor: completion + types.offset("io_cqe", "fd")?,
            result: completion + types.offset("io_cqe", "res")?,
            command: types.offset("io_kiocb", "cmd")?,
        })
    }
}

/// Where the words of io_uring requests are in `Event::command`.
#[derive(Clone, Copy, Debug)]
pub struct UringWords {
    pub position: usize,
    pub length: usize,
    pub sync_flags: usize,
}

impl UringWords {
    fn of(types: &Types) -> Result<Self> {
        let position = types.offset("io_rw", "kiocb")? + types.offset("kiocb", "ki_pos")?;
        Ok(UringWords {
            position: position as usize,
            length: types.offset("io_rw", "len")? as usize,
            sync_flags: types.offset("io_sync", "flags")? as usize,
        })
    }
}

/// Requests of libaio in an event: each is its address, and the beginning of its struct iocb or the
/// whole struct io_event (include/uapi/linux/aio_abi.h).
pub mod aio {
    pub const MOST: usize = 32;
    pub const BYTES: usize = 56;
}

/// Operations of io_uring that are recorded (enum io_uring_op, include/uapi/linux/io_uring.h).
pub mod uring {
    pub const READV: u32 = 1;
    pub const WRITEV: u32 = 2;
    pub const FSYNC: u32 = 3;
    pub const READ_FIXED: u32 = 4;
    pub const WRITE_FIXED: u32 = 5;
    pub const CLOSE: u32 = 19;
    pub const READ: u32 = 22;
    pub const WRITE: u32 = 23;
    pub const ALL: u64 = 1 << READV
        | 1 << WRITEV
        | 1 << FSYNC
        | 1 << READ_FIXED
        | 1 << WRITE_FIXED
        | 1 << CLOSE
        | 1 << READ
        | 1 << WRITE;
}

/// Descriptors of the maps.
#[derive(Clone, Copy)]
struct Maps {
    tasks: i32,
    forms: i32,
    targets: i32,
    scratch: i32,
    ring: i32,
    lost: i32,
    requests: i32,
}

/// The programs, loaded but not attached.
pub struct Recorder {
    targets: Map,
    ring: Ring,
    lost: Map,
    programs: Vec<Program>,
    /// None: this kernel does not show io_uring's requests.
    pub uring: Option<UringWords>,
    /// Whether this kernel shows faults in mappings.
    pub faults: bool,
    /// Kept: the programs use them.
    _maps: Vec<Map>,
}

/// The programs, attached. Dropping this detaches them.
pub struct Attached {
    _links: Vec<OwnedFd>,
}

impl Recorder {
    /// Create maps and programs. `forms`: the calls to record, by number; `ring_bytes`: a power of
    /// two. Fails with `unsupported` if the kernel does not allow it or is too old (before 5.11).
    pub fn load(forms: &[(u32, Form)], ring_bytes: usize) -> Result<Self> {
        Recorder::make(forms, ring_bytes).map_err(|why| match why {
            Error::BadRequest(_) => why,
            why => super::refused("record file operations", "5.11", &why),
        })
    }

    fn make(forms: &[(u32, Form)], ring_bytes: usize) -> Result<Self> {
        let processors = processors::possible()?;
        let own_types = load_types(&types::of_map(TASK_WORDS))?;
        let kernel = Types::of_kernel()?;
        let at = Offsets::of(&kernel)?;
        let make = |kind, key, value, entries, types| {
            let shape = MapShape {
                kind,
                key,
                value,
                entries,
            };
            Map::make(&shape, types, processors)
        };
        let tasks = make(MapKind::TaskStorage, 4, 4 * TASK_WORDS, 0, Some(&own_types))?;
        let table = make(MapKind::Shared, 4, 8, CALLS, None)?;
        for (number, form) in forms.iter().filter(|(number, _)| *number < CALLS) {
            table.update(&number.to_le_bytes(), &u64::from(form.0).to_le_bytes())?;
        }
        let targets = make(MapKind::Hash, 4, 8, TARGETS, None)?;
        let scratch = make(MapKind::PerProcessorArray, 4, SCRATCH_BYTES, 1, None)?;
        let lost = make(MapKind::PerProcessorArray, 4, 8, 1, None)?;
        let requests = make(MapKind::Hash, 8, at::URING as u32, REQUESTS, None)?;
        let ring = Ring::make(ring_bytes)?;
        let descriptor = |map: &Map| map.fd.as_raw_fd();
        let maps = Maps {
            tasks: descriptor(&tasks),
            forms: descriptor(&table),
            targets: descriptor(&targets),
            scratch: descriptor(&scratch),
            ring: ring.descriptor(),
            lost: descriptor(&lost),
            requests: descriptor(&requests),
        };
        let mut programs = vec![
            ("task_newtask", new_task(maps, &at)),
            ("sched_process_exec", execute(maps, &at)),
            ("sched_process_exit", exit(maps, &at)),
            ("sys_exit", leave(maps, &at)),
        ];
        let faults = kernel.tracepoint("mm_filemap_fault").is_ok();
        if faults {
            let mapping = kernel.offset("address_space", "host")?;
            programs.push(("mm_filemap_fault", fault(maps, &at, mapping)));
        }
        // Older kernels have io_uring_submit_sqe instead; its arguments differ by version.
        let shown = UringOffsets::of(&kernel)
            .and_then(|at| Ok((at, UringWords::of(&kernel)?)))
            .ok()
            .filter(|_| kernel.tracepoint("io_uring_submit_req").is_ok());
        let mut uring = None;
        if let Some((request, words)) = shown {
            programs.push(("io_uring_submit_req", submit(maps, &at, &request)));
            programs.push(("io_uring_complete", complete(maps, &request)));
            uring = Some(words);
        }
        // Last: a call is timed only when all that follows it is in place.
        programs.push(("sys_enter", enter(maps, &at)));
        let programs = programs
            .iter()
            .map(|(name, instructions)| Program::load(name, instructions, kernel.tracepoint(name)?))
            .collect::<Result<_>>()?;
        Ok(Recorder {
            targets,
            ring,
            lost,
            programs,
            uring,
            faults,
            _maps: vec![tasks, table, scratch, requests],
        })
    }

    /// Start the programs. They record only the tasks of `follow`, and what these start.
    pub fn attach(&self) -> Result<Attached> {
        let links = self.programs.iter().map(Program::attach);
        Ok(Attached {
            _links: links
                .collect::<Result<_>>()
                .map_err(|why| super::refused("record file operations", "5.11", &why))?,
        })
    }

    /// Record the calls of a process from now on, and of all processes and threads that it starts.
    pub fn follow(&self, process: u32) -> Result<()> {
        self.targets
            .update(&process.to_le_bytes(), &1_u64.to_le_bytes())
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Return the number of events that were lost: there was no room, or their program was busy.
    pub fn lost(&self) -> Result<u64> {
        let counts = self.lost.look_up(&0_u32.to_le_bytes())?;
        let missed = self.programs.iter().map(Program::missed);
        Ok(counts.map_or(0, |counts| counts.iter().sum::<u64>()) + missed.sum::<Result<u64>>()?)
    }
}

/// sys_enter(registers, number): records the time and the call.
fn enter(maps: Maps, at: &Offsets) -> Vec<Instruction> {
    const F_DUPFD: i32 = 0;
    const F_SETFD: i32 = 2;
    const F_DUPFD_CLOEXEC: i32 = 1030;
    const FIONCLEX: i32 = 0x5450;
    const FIOCLEX: i32 = 0x5451;
    let mut p = Assembler::default();
    p.register(Move, R6, R1);
    p.load(Eight, R1, R6, 8);
    p.store(Four, R10, KEY, R1);
    look_up(&mut p, maps.forms, KEY);
    p.jump_if(R0, Equal, 0, "out");
    p.load(Four, R8, R0, 0);
    p.jump_if(R8, Equal, 0, "out");
    recorded(&mut p, maps, at);
    p.register(Move, R9, R0);
    p.load(Four, R1, R7, at.status);
    p.jump_if(R1, Any, arch::IS_COMPAT, "out");
    p.load(Eight, R2, R6, 0);
    p.register(Move, R1, R8);
    p.constant(And, R1, KIND);
    p.jump_if(R1, Equal, CLOSE, "close");
    p.jump_if(R1, Equal, FCNTL, "fcntl");
    p.jump_if(R1, Equal, IOCTL, "ioctl");
    p.jump_if(R1, Equal, MMAP, "mmap");

    p.label("begin");
    p.load(Eight, R1, R6, 8);
    p.store(Four, R9, NUMBER, R1);
    p.store(Four, R9, FORM, R8);
    p.call(TimeNs);
    p.store(Eight, R9, BEGAN, R0);
    p.jump("out");

    p.label("close");
    p.load(Eight, R1, R2, at.arguments[0]);
    open_file(&mut p, at);
    p.load(Eight, R1, R10, WORD);
    p.store(Eight, R9, CLOSING, R1);
    p.jump("begin");

    // Locks and the like are no operations on data.
    p.label("fcntl");
    p.load(Eight, R1, R2, at.arguments[1]);
    for wanted in [F_DUPFD, F_SETFD, F_DUPFD_CLOEXEC] {
        p.jump_if(R1, Equal, wanted, "begin");
    }
    p.jump("out");

    p.label("ioctl");
    p.load(Eight, R1, R2, at.arguments[1]);
    for wanted in [FIONCLEX, FIOCLEX] {
        p.jump_if(R1, Equal, wanted, "begin");
    }
    p.jump("out");

    p.label("mmap");
    p.load(Eight, R1, R2, at.arguments[3]);
    p.jump_if(R1, Any, libc::MAP_ANONYMOUS, "out");
    p.jump("begin");
    out(p)
}

/// sys_exit(registers, returned): writes the call that the task was in.
fn leave(maps: Maps, at: &Offsets) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.register(Move, R6, R1);
    storage_of_this_task(&mut p, maps.tasks, R7);
    p.jump_if(R0, Equal, 0, "out");
    p.register(Move, R9, R0);
    p.load(Eight, R1, R9, BEGAN);
    p.jump_if(R1, Equal, 0, "out");
    p.store(Eight, R10, START, R1);
    p.store_constant(Eight, R9, BEGAN, 0);
    p.store_constant(Four, R10, KEY, 0);
    look_up(&mut p, maps.scratch, KEY);
    p.jump_if(R0, Equal, 0, "out");
    p.register(Move, R8, R0);
    p.store_constant(Four, R8, at::KIND, Kind::Call as i32);
    p.load(Four, R1, R9, NUMBER);
    p.store(Four, R8, at::NUMBER, R1);
    p.load(Eight, R1, R10, START);
    p.store(Eight, R8, at::START, R1);
    p.call(TimeNs);
    p.store(Eight, R8, at::END, R0);
    p.call(CurrentNumbers);
    p.store(Eight, R8, at::NUMBERS, R0);
    p.load(Eight, R1, R6, 8);
    p.store(Eight, R8, at::RESULT, R1);
    p.load(Eight, R2, R6, 0);
    for (index, offset) in at.arguments.into_iter().enumerate() {
        p.load(Eight, R1, R2, offset);
        p.store(Eight, R8, at::ARGUMENTS + 8 * index as i16, R1);
    }
    p.load(Eight, R1, R9, CLOSING);
    p.store(Eight, R8, at::FILE, R1);
    p.store_constant(Eight, R9, CLOSING, 0);
    p.store_constant(Eight, R8, at::POSITION, 0);
    p.load(Four, R9, R9, FORM);

    p.jump_if(R9, Any, HAS_DESCRIPTOR, "descriptor");
    p.jump("by-kind");
    p.label("descriptor");
    argument(&mut p, R1, DESCRIPTOR);
    p.load(Eight, R1, R1, at::RESULT);
    open_file(&mut p, at);
    p.load(Eight, R1, R10, WORD);
    p.jump_if(R1, Equal, 0, "by-kind");
    p.store(Eight, R8, at::FILE, R1);
    p.jump_if(R9, Any, HAS_POSITION, "position");
    p.jump("by-kind");
    p.label("position");
    read_kernel(&mut p, (R8, at::POSITION), 8, (R1, at.file_position));

    p.label("by-kind");
    p.register(Move, R1, R9);
    p.constant(And, R1, KIND);
    p.jump_if(R1, Equal, VECTOR, "vector");
    p.jump_if(R1, Equal, OFFSETS, "offsets");
    p.jump_if(R1, Equal, PATHS, "paths");
    p.jump_if(R1, Equal, OPEN, "open");
    p.jump_if(R1, Equal, OPENAT2, "openat2");
    p.jump_if(R1, Equal, SUBMIT, "submit");
    p.jump_if(R1, Equal, REAP, "reap");
    p.label("short");
    p.constant(Move, R6, at::SHORT.into());
    p.jump("write");

    p.label("vector");
    p.load(Eight, R6, R8, at::ARGUMENTS + 16);
    p.jump_if(R6, Equal, 0, "unknown");
    p.jump_if(R6, Above, MOST_BUFFERS, "unknown");
    p.register(Move, R2, R6);
    p.constant(ShiftLeft, R2, 4);
    p.register(Move, R1, R8);
    p.constant(Add, R1, at::PATHS.into());
    p.load(Eight, R3, R8, at::ARGUMENTS + 8);
    p.call(ReadUser);
    p.jump_if(R0, NotEqual, 0, "unknown");
    p.constant(Move, R1, 0);
    for index in 0..MOST_BUFFERS {
        if index > 0 {
            p.jump_if(R6, Equal, index, "added-up");
        }
        p.load(Eight, R2, R8, at::PATHS + 16 * index as i16 + 8);
        p.register(Add, R1, R2);
    }
    p.label("added-up");
    p.store(Eight, R8, at::ARGUMENTS + 8, R1);
    p.jump("short");
    p.label("unknown");
    p.store_constant(Eight, R8, at::ARGUMENTS + 8, -1);
    p.jump("short");

    p.label("offsets");
    for (number, given, done) in [(FIRST, "given", "done"), (SECOND, "second-given", "short")] {
        argument(&mut p, R6, number);
        p.load(Eight, R3, R6, at::RESULT);
        p.jump_if(R3, NotEqual, 0, given);
        p.store_constant(Eight, R6, at::RESULT, -1);
        p.jump(done);
        p.label(given);
        p.register(Move, R1, R6);
        p.constant(Add, R1, at::RESULT.into());
        p.constant(Move, R2, 8);
        p.call(ReadUser);
        if number == FIRST {
            p.label(done);
            p.register(Move, R1, R9);
            p.constant(ShiftRight, R1, SECOND);
            p.constant(And, R1, 7);
            p.jump_if(R1, Equal, 0, "short");
        }
    }
    p.jump("short");

    for (label, done) in [("submit", "submitted"), ("reap", "reaped")] {
        p.label(label);
        for index in 0..aio::MOST as i16 {
            let place = at::PATHS + index * aio::BYTES as i16;
            p.load(Eight, R1, R8, at::RESULT);
            p.jump_if(R1, SignedBelow, i32::from(index) + 1, done);
            if label == "submit" {
                p.load(Eight, R3, R8, at::ARGUMENTS + 16);
                p.constant(Add, R3, 8 * i32::from(index));
                read_user(&mut p, place, 8);
                p.load(Eight, R3, R8, place);
                read_user(&mut p, place + 8, 48);
            } else {
                p.load(Eight, R3, R8, at::ARGUMENTS + 24);
                p.constant(Add, R3, 32 * i32::from(index));
                read_user(&mut p, place, 32);
            }
        }
        p.label(done);
        p.store_constant(Four, R8, at::KIND, Kind::Aio as i32);
        let all = at::PATHS as i32 + (aio::MOST * aio::BYTES) as i32;
        p.constant(Move, R6, all);
        p.jump("write");
    }

    p.label("openat2");
    p.register(Move, R1, R8);
    p.constant(Add, R1, (at::ARGUMENTS + 24).into());
    p.constant(Move, R2, 8);
    p.load(Eight, R3, R8, at::ARGUMENTS + 16);
    p.call(ReadUser);
    p.label("open");
    for word in 0..5 {
        p.store_constant(Eight, R8, at::DEVICE + 8 * word, 0);
    }
    p.load(Eight, R6, R8, at::FILE);
    p.jump_if(R6, Equal, 0, "paths");
    read_kernel(&mut p, (R8, at::FILE_MODE), 4, (R6, at.file_mode));
    read_kernel(&mut p, (R10, WORD), 8, (R6, at.file_inode));
    p.load(Eight, R6, R10, WORD);
    p.jump_if(R6, Equal, 0, "paths");
    read_kernel(&mut p, (R8, at::INODE), 8, (R6, at.inode_number));
    read_kernel(&mut p, (R8, at::SIZE), 8, (R6, at.inode_size));
    read_kernel(&mut p, (R8, at::BLOCKS), 8, (R6, at.inode_blocks));
    read_kernel(&mut p, (R8, at::INODE_MODE), 4, (R6, at.inode_mode));
    read_kernel(&mut p, (R10, WORD), 8, (R6, at.inode_file_system));
    p.load(Eight, R6, R10, WORD);
    p.jump_if(R6, Equal, 0, "paths");
    read_kernel(&mut p, (R8, at::DEVICE), 4, (R6, at.device));

    p.label("paths");
    p.store_constant(Four, R8, at::FIRST_LENGTH, 0);
    p.store_constant(Eight, R8, at::SECOND_LENGTH, 0);
    argument(&mut p, R1, FIRST);
    p.load(Eight, R3, R1, at::RESULT);
    p.register(Move, R1, R8);
    p.constant(Add, R1, at::PATHS.into());
    p.constant(Move, R2, PATH_BYTES);
    p.call(ReadUserText);
    p.register(Move, R6, R0);
    p.jump_if(R6, SignedAtLeast, 0, "first-length");
    p.constant(Move, R6, 0);
    p.label("first-length");
    p.store(Four, R8, at::FIRST_LENGTH, R6);
    p.register(Move, R1, R9);
    p.constant(ShiftRight, R1, SECOND);
    p.constant(And, R1, 7);
    p.jump_if(R1, Equal, 0, "both");
    argument(&mut p, R1, SECOND);
    p.load(Eight, R3, R1, at::RESULT);
    p.register(Move, R1, R8);
    p.register(Add, R1, R6);
    p.constant(Add, R1, at::PATHS.into());
    p.constant(Move, R2, PATH_BYTES);
    p.call(ReadUserText);
    p.jump_if(R0, SignedBelow, 0, "both");
    p.store(Four, R8, at::SECOND_LENGTH, R0);
    p.register(Add, R6, R0);
    p.label("both");
    p.constant(Add, R6, at::PATHS.into());

    p.label("write");
    p.register(Move, R2, R8);
    p.register(Move, R3, R6);
    write(&mut p, maps);
    out(p)
}

/// task_newtask(task, flags): the new task is recorded like the one that makes it.
fn new_task(maps: Maps, at: &Offsets) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.load(Eight, R6, R1, 0);
    p.load(Eight, R9, R1, 8);
    recorded(&mut p, maps, at);
    p.register(Move, R2, R6);
    storage(&mut p, maps.tasks, StorageOf::Made);
    event(&mut p, Kind::Task, EVENT);
    p.load(Four, R1, R6, at.thread);
    p.store(Eight, R10, EVENT + at::ARGUMENTS, R1);
    p.load(Four, R1, R6, at.process);
    p.store(Eight, R10, EVENT + at::ARGUMENTS + 8, R1);
    p.store(Eight, R10, EVENT + at::ARGUMENTS + 16, R9);
    own_name(&mut p);
    write_short(&mut p, maps);
    out(p)
}

/// sched_process_exec(task, old number, program)
fn execute(maps: Maps, at: &Offsets) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.load(Eight, R9, R1, 8);
    recorded(&mut p, maps, at);
    event(&mut p, Kind::Exec, EVENT);
    p.store(Eight, R10, EVENT + at::ARGUMENTS, R9);
    own_name(&mut p);
    write_short(&mut p, maps);
    out(p)
}

/// sched_process_exit(task)
fn exit(maps: Maps, at: &Offsets) -> Vec<Instruction> {
    let mut p = Assembler::default();
    recorded(&mut p, maps, at);
    // Another process may get the number.
    p.call(CurrentNumbers);
    p.store(Four, R10, PROCESS, R0);
    p.map(R1, maps.targets);
    p.register(Move, R2, R10);
    p.constant(Add, R2, PROCESS.into());
    p.call(MapDelete);
    event(&mut p, Kind::Exit, EVENT);
    write_short(&mut p, maps);
    out(p)
}

/// mm_filemap_fault(mapping, page). `host`: offset of the inode in struct address_space.
fn fault(maps: Maps, at: &Offsets, host: i16) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.load(Eight, R6, R1, 0);
    p.load(Eight, R9, R1, 8);
    recorded(&mut p, maps, at);
    p.load(Eight, R6, R6, host);
    p.jump_if(R6, Equal, 0, "out");
    event(&mut p, Kind::Fault, EVENT);
    p.load(Eight, R1, R6, at.inode_number);
    p.store(Eight, R10, EVENT + at::ARGUMENTS + 8, R1);
    p.store(Eight, R10, EVENT + at::ARGUMENTS + 16, R9);
    p.load(Eight, R1, R6, at.inode_file_system);
    p.jump_if(R1, Equal, 0, "out");
    p.load(Four, R1, R1, at.device);
    p.store(Eight, R10, EVENT + at::ARGUMENTS, R1);
    write_short(&mut p, maps);
    out(p)
}

/// io_uring_submit_req(request): keeps the event until the request completes, perhaps elsewhere.
fn submit(maps: Maps, at: &Offsets, request: &UringOffsets) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.load(Eight, R6, R1, 0);
    recorded(&mut p, maps, at);
    p.load(One, R8, R6, request.operation);
    p.jump_if(R8, Above, 63, "out");
    p.wide(R1, uring::ALL);
    p.register(ShiftRight, R1, R8);
    p.jump_if(R1, Any, 1, "wanted");
    p.jump("out");
    p.label("wanted");
    event(&mut p, Kind::Uring, URING_EVENT);
    p.store(Four, R10, URING_EVENT + at::NUMBER, R8);
    p.load(Four, R1, R6, request.descriptor);
    p.store(Eight, R10, URING_EVENT + at::ARGUMENTS, R1);
    p.load(Four, R1, R6, request.flags);
    p.store(Eight, R10, URING_EVENT + at::ARGUMENTS + 8, R1);
    let command = (R10, URING_EVENT + at::COMMAND);
    read_kernel(
        &mut p,
        command,
        at::COMMAND_BYTES.into(),
        (R6, request.command),
    );
    p.store(Eight, R10, REQUEST, R6);
    p.map(R1, maps.requests);
    p.register(Move, R2, R10);
    p.constant(Add, R2, REQUEST.into());
    p.register(Move, R3, R10);
    p.constant(Add, R3, URING_EVENT.into());
    p.constant(Move, R4, 0);
    p.call(MapUpdate);
    p.jump_if(R0, Equal, 0, "out");
    lost(&mut p, maps);
    out(p)
}

/// io_uring_complete(ring, request, ...)
fn complete(maps: Maps, request: &UringOffsets) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.load(Eight, R6, R1, 8);
    p.jump_if(R6, Equal, 0, "out");
    p.store(Eight, R10, START, R6);
    look_up(&mut p, maps.requests, START);
    p.jump_if(R0, Equal, 0, "out");
    p.register(Move, R8, R0);
    p.call(TimeNs);
    p.store(Eight, R8, at::END, R0);
    read_kernel(&mut p, (R10, WORD), 4, (R6, request.result));
    p.load(Four, R1, R10, WORD);
    p.constant(ShiftLeft, R1, 32);
    p.constant(ShiftRightSigned, R1, 32);
    p.store(Eight, R8, at::RESULT, R1);
    read_kernel(&mut p, (R8, at::FILE), 8, (R6, request.file));
    p.register(Move, R2, R8);
    p.constant(Move, R3, at::URING.into());
    output(&mut p, maps);
    p.register(Move, R9, R0);
    p.map(R1, maps.requests);
    p.register(Move, R2, R10);
    p.constant(Add, R2, START.into());
    p.call(MapDelete);
    p.jump_if(R9, Equal, 0, "out");
    lost(&mut p, maps);
    out(p)
}

/// R7 = this task, R0 = its storage; leaves if it is not recorded. Keeps R6, R8 and R9.
fn recorded(p: &mut Assembler, maps: Maps, at: &Offsets) {
    storage_of_this_task(p, maps.tasks, R7);
    p.jump_if(R0, NotEqual, 0, "recorded");
    p.load(Four, R1, R7, at.process);
    p.store(Four, R10, PROCESS, R1);
    look_up(p, maps.targets, PROCESS);
    p.jump_if(R0, Equal, 0, "out");
    p.register(Move, R2, R7);
    storage(p, maps.tasks, StorageOf::Made);
    p.jump_if(R0, Equal, 0, "out");
    p.label("recorded");
}

/// The word on the stack at WORD = the address of the open file with the descriptor in R1, or 0. R7
/// is the task.
fn open_file(p: &mut Assembler, at: &Offsets) {
    p.store_constant(Eight, R10, WORD, 0);
    p.constant(ShiftLeft, R1, 32);
    p.constant(ShiftRightSigned, R1, 32);
    p.jump_if(R1, SignedBelow, 0, "no-file");
    p.load(Eight, R2, R7, at.files);
    p.jump_if(R2, Equal, 0, "no-file");
    p.load(Eight, R2, R2, at.table);
    p.jump_if(R2, Equal, 0, "no-file");
    p.load(Four, R3, R2, at.most_slots);
    p.jump_if_register(R1, AtLeast, R3, "no-file");
    p.load(Eight, R3, R2, at.slots);
    p.constant(ShiftLeft, R1, 3);
    p.register(Add, R3, R1);
    p.register(Move, R1, R10);
    p.constant(Add, R1, WORD.into());
    p.constant(Move, R2, 8);
    p.call(ReadKernel);
    p.label("no-file");
}

/// to = the event R8, moved on so that RESULT is the argument numbered in the form R9 at `shift`:
/// the arguments follow the result.
fn argument(p: &mut Assembler, to: Register, shift: i32) {
    p.register(Move, to, R9);
    p.constant(ShiftRight, to, shift);
    p.constant(And, to, 7);
    p.constant(ShiftLeft, to, 3);
    p.register(Add, to, R8);
}

/// Copy from the kernel's memory; what cannot be read is 0. `from` must not be R1 or R2, unless it is
/// R1 itself.
fn read_kernel(p: &mut Assembler, to: (Register, i16), bytes: i32, from: (Register, i16)) {
    p.register(Move, R3, from.0);
    p.constant(Add, R3, from.1.into());
    p.register(Move, R1, to.0);
    p.constant(Add, R1, to.1.into());
    p.constant(Move, R2, bytes);
    p.call(ReadKernel);
}

/// Copy from the program's memory at R3 to the event R8; what cannot be read is 0.
fn read_user(p: &mut Assembler, to: i16, bytes: i32) {
    p.register(Move, R1, R8);
    p.constant(Add, R1, to.into());
    p.constant(Move, R2, bytes);
    p.call(ReadUser);
}

/// Fill in an event of this task on the stack.
fn event(p: &mut Assembler, kind: Kind, place: i16) {
    p.store_constant(Four, R10, place + at::KIND, kind as i32);
    p.store_constant(Four, R10, place + at::NUMBER, 0);
    for word in (at::RESULT..at::SHORT).step_by(8) {
        p.store_constant(Eight, R10, place + word, 0);
    }
    p.call(CurrentNumbers);
    p.store(Eight, R10, place + at::NUMBERS, R0);
    p.call(TimeNs);
    p.store(Eight, R10, place + at::START, R0);
    p.store(Eight, R10, place + at::END, R0);
}

/// The name of this task becomes arguments 4 and 5.
fn own_name(p: &mut Assembler) {
    p.register(Move, R1, R10);
    p.constant(Add, R1, (EVENT + at::ARGUMENTS + 24).into());
    p.constant(Move, R2, 16);
    p.call(CurrentName);
}

fn write_short(p: &mut Assembler, maps: Maps) {
    p.register(Move, R2, R10);
    p.constant(Add, R2, EVENT.into());
    p.constant(Move, R3, at::SHORT.into());
    write(p, maps);
}

/// Write R3 bytes from R2 to the ring buffer, or count the loss.
fn write(p: &mut Assembler, maps: Maps) {
    output(p, maps);
    p.jump_if(R0, Equal, 0, "out");
    lost(p, maps);
}

fn output(p: &mut Assembler, maps: Maps) {
    const NO_WAKEUP: i32 = 1;
    p.map(R1, maps.ring);
    p.constant(Move, R4, NO_WAKEUP);
    p.call(RingOutput);
}

/// Count a loss.
fn lost(p: &mut Assembler, maps: Maps) {
    p.store_constant(Four, R10, KEY, 0);
    look_up(p, maps.lost, KEY);
    p.jump_if(R0, Equal, 0, "out");
    p.load(Eight, R1, R0, 0);
    p.constant(Add, R1, 1);
    p.store(Eight, R0, 0, R1);
}

/// R0 = the value of the key on the stack, or 0.
fn look_up(p: &mut Assembler, map: i32, key: i16) {
    p.register(Move, R2, R10);
    p.constant(Add, R2, key.into());
    p.map(R1, map);
    p.call(MapLookup);
}

fn out(mut p: Assembler) -> Vec<Instruction> {
    p.label("out");
    p.constant(Move, R0, 0);
    p.exit();
    p.finish()
}
