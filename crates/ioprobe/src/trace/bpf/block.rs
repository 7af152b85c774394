//! Latencies of a device's requests: one program at the block layer's completion tracepoint.
//!
//! The kernel notes the creation time in every request (start_time_ns, also the basis of the times
//! in /sys/block/NAME/stat), so one tracepoint is enough. If a device's accounting is switched off
//! there is no such time, and the request counts as untimed. A request that is completed in parts
//! counts at its last part. Requests of other devices leave at the latest with the second jump.

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
/// enum req_op (include/linux/blk_types.h), in the lowest byte of a request's flags; higher values
/// share one row.
pub const KINDS: [&str; 5] = ["read", "write", "flush", "discard", "other"];
const KIND: i32 = 0xff;

/// Offsets in kernel structures that the program reads.
struct Offsets {
    queue: i16,
    flags: i16,
    length: i16,
    started: i16,
    disk: i16,
    major: i16,
    minor: i16,
}

/// The program, attached for one device. Dropping this detaches it.
pub struct Watching {
    rows: Rows,
    program: Program,
    _link: OwnedFd,
}

impl Watching {
    /// Count the requests of a disk while the gate is open; `unsupported` if the kernel does not
    /// allow it or is too old (before 5.16).
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

    /// Return the number of missed completions, of any device: the program was busy with another
    /// one on that CPU.
    pub fn missed(&self) -> Result<u64> {
        self.program.missed()
    }

    /// Return the times of each kind of request, in the order of `KINDS`.
    pub fn read(&self) -> Result<Vec<Times>> {
        (0..KINDS.len() as u32)
            .map(|kind| self.rows.read(kind))
            .collect()
    }
}

pub fn refused(why: Error) -> Error {
    super::refused("count requests", "5.16", &why)
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
    // More parts will follow.
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
    // A write with a flush before or after it, such as a journal commit, completes a second time
    // with no bytes. It counts twice, as in the device's own counters (seen on Linux 6.18: three
    // writes with O_DSYNC raised `write_ios` by six).
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
