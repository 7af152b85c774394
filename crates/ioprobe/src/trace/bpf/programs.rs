//! The three programs: they follow a process tree where it forks, and time system calls from entry
//! to exit.
//!
//! The state of a task is in task storage (a few words that the kernel attaches to the task and
//! frees with it). So neither pids, nor their reuse, nor an execve by a second thread can mix tasks
//! up. Counts go to a per-CPU array. While attached, the programs run for every system call of
//! every process on the machine: tasks outside the tree must leave with the first jump.
//!
//! A call counts when it returns to its program. So a call does not count if the task was sent
//! SIGKILL during it, by another process or because another thread ended the process; a tracer that
//! stops tasks never sees those either. SIGTERM and the like stop a traced program *after* the call
//! has returned, while an untraced one dies in the call. They count, or the two methods would
//! differ. But they count for one thread of a process only: that thread ends the others, as above.

use super::assembler::{Assembler, Helper, If, Instruction, Operation, Register, Size};
use super::rows;
use super::types::Types;
use crate::error::Result;
use crate::trace::arch;
use crate::trace::call::LAST_ERRNO;

use Helper::{CurrentTask, MapLookup, MapUpdate, TaskStorageGet, TimeNs};
use If::{Above, AtLeast, Equal, NotEqual, SignedAtLeast, SignedBelow};
use Operation::{Add, And, Move, Negate, ShiftLeft, ShiftRight, ShiftRightSigned, Sub};
use Register::{R0, R1, R10, R2, R3, R4, R6, R7, R8, R9};
use Size::{Eight, Four};

/// Storage of a task: when its current call began (0: not in a call), the call's number, the task's
/// role, and whether the call is a 32-bit one.
pub const TASK_WORDS: u32 = 6;
const BEGAN: i16 = 0;
const NUMBER: i16 = 8;
pub const ROLE: i16 = 12;
const COMPAT: i16 = 16;

/// The probe itself: its own calls do not count; its children count from their execve on.
pub const STARTER: i32 = 0;
const BEFORE_EXECVE: i32 = 1;
const COUNTED: i32 = 2;
/// A new child: it returns from the call that created it without having entered it.
const NEWBORN: i32 = 3;

/// Rows of the counts: native calls, 32-bit calls, calls beyond both tables, and losses.
pub const TABLE: u32 = 512;
pub const BEYOND: u32 = 2 * TABLE;
pub const LOST: u32 = BEYOND + 1;
pub const ROWS: u32 = LOST + 1;

/// Key of an error: number of the call, errno, whether it is a 32-bit call, and a word of padding.
pub const ERROR_KEY: u32 = 16;
pub const ERRORS: u32 = 4096;

const EXECVE: i32 = libc::SYS_execve as i32;
const EXECVEAT: i32 = libc::SYS_execveat as i32;
const SIGKILL_BIT: i32 = 1 << (libc::SIGKILL - 1);
/// Exit signals after which the current call has not returned: none (another thread ended the
/// process), SIGKILL, and those that dump core, which end the thread that got them only after its
/// call.
const NOT_RETURNED: u64 = 1 | 1 << 9 | CORE;
const CORE: u64 =
    1 << 3 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 24 | 1 << 25 | 1 << 31;

/// Offsets in kernel structures that the programs read.
pub struct Offsets {
    task_status: i16,
    task_pending: i16,
    task_signal: i16,
    signal_exit_code: i16,
    task_number: i16,
    process_number: i16,
    call_number: i16,
}

impl Offsets {
    pub fn of(types: &Types) -> Result<Self> {
        Ok(Offsets {
            task_status: arch::task_status(types)?,
            task_pending: types.offset("task_struct", "pending")?
                + types.offset("sigpending", "signal")?,
            task_signal: types.offset("task_struct", "signal")?,
            signal_exit_code: types.offset("signal_struct", "group_exit_code")?,
            task_number: types.offset("task_struct", "pid")?,
            process_number: types.offset("task_struct", "tgid")?,
            call_number: types.offset("pt_regs", arch::CALL_NUMBER)?,
        })
    }
}

/// Descriptors of the maps.
#[derive(Clone, Copy)]
pub struct Maps {
    pub tasks: i32,
    pub counts: i32,
    pub errors: i32,
}

/// sched_process_fork(parent, child): the child of a counted task is counted; a child of the probe
/// waits for its execve.
pub fn fork(maps: Maps) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.load(Eight, R6, R1, 8);
    p.load(Eight, R2, R1, 0);
    storage(&mut p, maps.tasks, StorageOf::Present);
    p.jump_if(R0, Equal, 0, "out");
    p.load(Four, R7, R0, ROLE);
    p.jump_if(R7, Equal, BEFORE_EXECVE, "out");
    p.register(Move, R2, R6);
    storage(&mut p, maps.tasks, StorageOf::Made);
    p.jump_if(R0, Equal, 0, "no room");
    p.constant(Move, R1, NEWBORN);
    p.jump_if(R7, NotEqual, STARTER, "role");
    p.constant(Move, R1, BEFORE_EXECVE);
    p.label("role");
    p.store(Four, R0, ROLE, R1);
    p.jump("out");
    p.label("no room");
    lost(&mut p, maps);
    out(p)
}

/// sys_enter(registers, number): records the time and the call.
pub fn enter(maps: Maps, at: &Offsets) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.load(Eight, R6, R1, 8);
    storage_of_this_task(&mut p, maps.tasks, R7);
    p.jump_if(R0, Equal, 0, "out");
    p.register(Move, R8, R0);
    p.load(Four, R1, R8, ROLE);
    p.jump_if(R1, Equal, COUNTED, "counted");
    p.jump_if(R1, Equal, STARTER, "out");
    p.jump_if(R1, Equal, NEWBORN, "grown");
    p.jump_if(R6, Equal, EXECVE, "counted");
    p.jump_if(R6, Equal, EXECVEAT, "counted");
    p.jump("out");
    p.label("grown");
    p.store_constant(Four, R8, ROLE, COUNTED);
    p.label("counted");
    p.store(Four, R8, NUMBER, R6);
    p.load(Four, R1, R7, at.task_status);
    p.constant(And, R1, arch::IS_COMPAT);
    p.store(Four, R8, COMPAT, R1);
    p.call(TimeNs);
    p.store(Eight, R8, BEGAN, R0);
    out(p)
}

/// sys_exit(registers, returned): counts the call that the task was in.
pub fn leave(maps: Maps, at: &Offsets) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.register(Move, R6, R1);
    storage_of_this_task(&mut p, maps.tasks, R8);
    p.jump_if(R0, Equal, 0, "out");
    p.register(Move, R9, R0);
    p.load(Eight, R7, R9, BEGAN);
    p.jump_if(R7, Equal, 0, "not begun");

    p.call(TimeNs);
    p.register(Sub, R0, R7);
    p.register(Move, R7, R0);
    p.store_constant(Eight, R9, BEGAN, 0);
    p.load(Four, R1, R9, ROLE);
    p.jump_if(R1, NotEqual, BEFORE_EXECVE, "alive?");
    // Calls before a successful execve belong to the probe.
    p.load(Eight, R1, R6, 8);
    p.jump_if(R1, NotEqual, 0, "out");
    p.store_constant(Four, R9, ROLE, COUNTED);

    p.label("alive?");
    p.load(Eight, R1, R8, at.task_pending);
    p.constant(And, R1, SIGKILL_BIT);
    p.jump_if(R1, NotEqual, 0, "dying");

    p.label("count");
    p.load(Four, R1, R9, NUMBER);
    p.load(Four, R2, R9, COMPAT);
    p.jump_if(R1, AtLeast, TABLE as i32, "beyond");
    p.jump_if(R2, Equal, 0, "row");
    p.constant(Add, R1, TABLE as i32);
    p.jump("row");
    p.label("beyond");
    p.constant(Move, R1, BEYOND as i32);
    p.label("row");
    rows::find(&mut p, maps.counts);
    p.jump_if(R0, Equal, 0, "out");
    rows::add_r7(&mut p);

    p.load(Eight, R7, R6, 8);
    p.load(Four, R8, R9, COMPAT);
    p.jump_if(R8, Equal, 0, "returned");
    p.constant(ShiftLeft, R7, 32);
    p.constant(ShiftRightSigned, R7, 32);
    p.label("returned");
    p.jump_if(R7, SignedAtLeast, 0, "out");
    p.jump_if(R7, SignedBelow, -LAST_ERRNO as i32, "out");
    error(&mut p, maps);
    p.jump("out");

    // An exit without an entry: of the fork in the child, or of a call that seccomp rejected before
    // it was seen.
    p.label("not begun");
    p.load(Four, R1, R9, ROLE);
    p.jump_if(R1, Equal, COUNTED, "turned down");
    p.jump_if(R1, NotEqual, NEWBORN, "out");
    p.store_constant(Four, R9, ROLE, COUNTED);
    p.jump("out");
    p.label("turned down");
    p.load(Eight, R1, R6, 0);
    p.load(Four, R1, R1, at.call_number);
    p.store(Four, R9, NUMBER, R1);
    p.load(Four, R1, R8, at.task_status);
    p.constant(And, R1, arch::IS_COMPAT);
    p.store(Four, R9, COMPAT, R1);
    p.constant(Move, R7, -1);
    p.jump("alive?");

    p.label("dying");
    p.load(Eight, R1, R8, at.task_signal);
    p.load(Four, R1, R1, at.signal_exit_code);
    p.constant(And, R1, 0x7f);
    p.jump_if(R1, Above, 63, "count");
    p.wide(R2, NOT_RETURNED);
    p.register(ShiftRight, R2, R1);
    p.constant(And, R2, 1);
    p.jump_if(R2, NotEqual, 0, "out");
    // A signal sent to a process ends its first thread after its call, and then the others in
    // theirs.
    p.load(Four, R1, R8, at.task_number);
    p.load(Four, R2, R8, at.process_number);
    p.jump_if_register(R1, Equal, R2, "count");
    out(p)
}

#[derive(Clone, Copy)]
pub enum StorageOf {
    Present = 0,
    /// BPF_LOCAL_STORAGE_GET_F_CREATE
    Made = 1,
}

/// R0 = the storage in map `tasks` of the task in R2, or 0.
pub fn storage(p: &mut Assembler, tasks: i32, of: StorageOf) {
    p.map(R1, tasks);
    p.constant(Move, R3, 0);
    p.constant(Move, R4, of as i32);
    p.call(TaskStorageGet);
}

/// The task in `task`, and its storage in R0, or 0 if it has none.
pub fn storage_of_this_task(p: &mut Assembler, tasks: i32, task: Register) {
    p.call(CurrentTask);
    p.register(Move, task, R0);
    p.register(Move, R2, R0);
    storage(p, tasks, StorageOf::Present);
}

/// Count the error in R7 of the call in storage R9; R8 says whether it is a 32-bit call.
fn error(p: &mut Assembler, maps: Maps) {
    p.load(Four, R1, R9, NUMBER);
    p.store(Four, R10, -16, R1);
    p.constant(Negate, R7, 0);
    p.store(Four, R10, -12, R7);
    p.store(Four, R10, -8, R8);
    p.store_constant(Four, R10, -4, 0);
    find_error(p, maps);
    p.jump_if(R0, NotEqual, 0, "known");
    // New: create it with 0. That fails if another CPU was faster; then the lookup finds it.
    p.store_constant(Eight, R10, -24, 0);
    p.map(R1, maps.errors);
    p.register(Move, R2, R10);
    p.constant(Add, R2, -16);
    p.register(Move, R3, R10);
    p.constant(Add, R3, -24);
    const NEW_ONLY: i32 = 1;
    p.constant(Move, R4, NEW_ONLY);
    p.call(MapUpdate);
    find_error(p, maps);
    p.jump_if(R0, NotEqual, 0, "known");
    lost(p, maps);
    p.jump("out");
    p.label("known");
    p.load(Eight, R1, R0, 0);
    p.constant(Add, R1, 1);
    p.store(Eight, R0, 0, R1);
}

fn find_error(p: &mut Assembler, maps: Maps) {
    p.map(R1, maps.errors);
    p.register(Move, R2, R10);
    p.constant(Add, R2, -16);
    p.call(MapLookup);
}

/// Count a loss, in the total of the last row.
fn lost(p: &mut Assembler, maps: Maps) {
    p.constant(Move, R1, LOST as i32);
    rows::find(p, maps.counts);
    p.jump_if(R0, Equal, 0, "out");
    p.load(Eight, R1, R0, 0);
    p.constant(Add, R1, 1);
    p.store(Eight, R0, 0, R1);
}

fn out(mut p: Assembler) -> Vec<Instruction> {
    p.label("out");
    p.constant(Move, R0, 0);
    p.exit();
    p.finish()
}
