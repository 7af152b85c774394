//! Latencies of a device's requests: one program where the block layer says that a request is complete.
//!
//! The kernel notes in every request when it was made (start_time_ns, which the times in /sys/block/NAME/stat are reckoned from
//! too); so one tracepoint is enough. Where a device's accounting is switched off it notes nothing, and a request counts without
//! a time. One that is completed in parts counts with its last. Requests of other devices leave with the second jump.

use std::os::unix::io::OwnedFd;

use super::assembler::{Assembler, Helper, If, Instruction, Operation, Register, Size};
use super::kernel::{Gate, Program};
use super::rows::{self, Rows};
use super::types::Types;
use crate::error::{Error, Result};
use crate::trace::call::Times;
use crate::trace::processors;

use Helper::TimeNs;
use If::{Below, Equal, NotEqual};
use Operation::{And, Move, Sub};
use Register::{R0, R1, R6, R7, R8, R9};
use Size::{Eight, Four};

const TRACEPOINT: &str = "block_rq_complete";
/// enum req_op (include/linux/blk_types.h), in the lowest byte of a request's flags; what is above is one row.
pub const KINDS: [&str; 5] = ["read", "write", "flush", "discard", "other"];
const KIND: i32 = 0xff;

/// Where in the kernel's structures lies what the program reads.
struct Offsets {
    queue: i16,
    flags: i16,
    length: i16,
    started: i16,
    disk: i16,
    major: i16,
    minor: i16,
}

/// The program at work on one device. It stops when this is dropped.
pub struct Watching {
    rows: Rows,
    program: Program,
    _link: OwnedFd,
}

impl Watching {
    /// The requests of a disk are counted while the gate is open; `unsupported` where the kernel does not allow it or is too old (5.16).
    pub fn begin(major: u32, minor: u32, gate: &Gate) -> Result<Self> {
        Watching::attach(major, minor, gate).map_err(refused)
    }

    fn attach(major: u32, minor: u32, gate: &Gate) -> Result<Self> {
        let kernel = Types::of_kernel()?;
        let at = Offsets::of(&kernel)?;
        let rows = Rows::make(KINDS.len() as u32, processors::possible()?)?;
        let device = (major as i32, minor as i32);
        let instructions = complete(rows.descriptor(), gate.descriptor(), &at, device);
        let program = Program::load(TRACEPOINT, &instructions, kernel.tracepoint(TRACEPOINT)?)?;
        let link = program.attach()?;
        Ok(Watching {
            rows,
            program,
            _link: link,
        })
    }

    /// Completions of whatever device that this did not see, because it was at another one on that processor.
    pub fn missed(&self) -> Result<u64> {
        self.program.missed()
    }

    /// For each kind of request its times, in the order of `KINDS`.
    pub fn read(&self) -> Result<Vec<Times>> {
        (0..KINDS.len() as u32)
            .map(|kind| self.rows.read(kind))
            .collect()
    }
}

pub fn refused(why: Error) -> Error {
    super::refused("requests", "5.16", &why)
}

impl Offsets {
    fn of(types: &Types) -> Result<Self> {
        Ok(Offsets {
            queue: types.offset("request", "q")?,
            flags: types.offset("request", "cmd_flags")?,
            length: types.offset("request", "__data_len")?,
            started: types.offset("request", "start_time_ns")?,
            disk: types.offset("request_queue", "disk")?,
            major: types.offset("gendisk", "major")?,
            minor: types.offset("gendisk", "first_minor")?,
        })
    }
}

/// block_rq_complete(request, error, bytes)
fn complete(rows: i32, gate: i32, at: &Offsets, (major, minor): (i32, i32)) -> Vec<Instruction> {
    let mut p = Assembler::default();
    p.load(Eight, R6, R1, 0);
    p.load(Eight, R7, R1, 16);
    p.load(Eight, R8, R6, at.queue);
    p.load(Eight, R8, R8, at.disk);
    p.load(Four, R1, R8, at.major);
    p.jump_if(R1, NotEqual, major, "out");
    p.load(Four, R1, R8, at.minor);
    p.jump_if(R1, NotEqual, minor, "out");
    // More of it is to come.
    p.load(Four, R1, R6, at.length);
    p.jump_if_register(R7, Below, R1, "out");
    p.constant(Move, R1, 0);
    rows::find(&mut p, gate);
    p.jump_if(R0, Equal, 0, "out");
    p.load(Eight, R1, R0, 0);
    p.jump_if(R1, Equal, 0, "out");
    p.load(Four, R8, R6, at.flags);
    p.constant(And, R8, KIND);
    p.jump_if(R8, Below, KINDS.len() as i32 - 1, "kind");
    p.constant(Move, R8, KINDS.len() as i32 - 1);
    p.label("kind");
    // A write that flushes before or after itself, such as a journal's commit, completes a second time, with no bytes. It counts
    // twice, as in the device's own counters (seen on Linux 6.18: three writes with O_DSYNC raised `write_ios` by six).
    p.constant(Move, R7, -1); // no time
    p.load(Eight, R9, R6, at.started);
    p.jump_if(R9, Equal, 0, "row"); // accounting is switched off for this queue
    p.call(TimeNs);
    p.register(Move, R7, R0);
    p.register(Sub, R7, R9);
    p.label("row");
    p.register(Move, R1, R8);
    rows::find(&mut p, rows);
    p.jump_if(R0, Equal, 0, "out");
    rows::add_r7(&mut p);
    p.label("out");
    p.constant(Move, R0, 0);
    p.exit();
    p.finish()
}
