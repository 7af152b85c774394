//! Latencies of a device's requests: one program where the block layer says that a request is complete.
//!
//! The kernel notes in every request when it was made (start_time_ns, which the times in /sys/block/NAME/stat are reckoned from
//! too); so one tracepoint is enough. A request that is completed in parts counts with its last. Requests of other devices leave
//! with the second jump.

use std::os::unix::io::{AsRawFd, OwnedFd};

use super::assembler::{Assembler, Helper, If, Instruction, Operation, Register, Size};
use super::kernel::{Map, MapKind, MapShape, Program};
use super::programs::bar_of_r7;
use super::types::Types;
use crate::account::call::BARS;
use crate::account::processors;
use crate::error::{Error, Result};

use Helper::{MapLookup, TimeNs};
use If::{Above, Below, Equal, NotEqual, SignedBelow};
use Operation::{Add, And, Move, ShiftLeft, Sub};
use Register::{R0, R1, R10, R2, R6, R7, R8, R9};
use Size::{Eight, Four};

const TRACEPOINT: &str = "block_rq_complete";
/// enum req_op (include/linux/blk_types.h), in the lowest byte of a request's flags; what is above is one row.
pub const KINDS: [&str; 5] = ["read", "write", "flush", "discard", "other"];
const KIND: i32 = 0xff;
/// A row: the total of all times, and one count for each bar.
const ROW_WORDS: usize = 1 + BARS;

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
    rows: Map,
    processors: usize,
    _program: Program,
    _link: OwnedFd,
}

impl Watching {
    /// From here on the requests of a disk are counted; `unsupported` where the kernel does not allow it or is too old (5.16).
    pub fn begin(major: u32, minor: u32) -> Result<Self> {
        let told = |why: Error| Error::unsupported(format!("count requests by BPF: {why}"));
        Watching::attach(major, minor).map_err(told)
    }

    fn attach(major: u32, minor: u32) -> Result<Self> {
        let processors = processors::possible()?;
        let kernel = Types::of_kernel()?;
        let at = Offsets::of(&kernel)?;
        let shape = MapShape {
            kind: MapKind::PerProcessorArray,
            key: 4,
            value: 8 * ROW_WORDS as u32,
            entries: KINDS.len() as u32,
        };
        let rows = Map::make(&shape, None, processors)?;
        let instructions = complete(rows.fd.as_raw_fd(), &at, major as i32, minor as i32);
        let program = Program::load(TRACEPOINT, &instructions, kernel.tracepoint(TRACEPOINT)?)?;
        let link = program.attach()?;
        Ok(Watching {
            rows,
            processors,
            _program: program,
            _link: link,
        })
    }

    /// For each kind of request the total of times and the counts by bar, in the order of `KINDS`.
    pub fn read(&self) -> Result<Vec<(u64, Vec<u64>)>> {
        (0..KINDS.len() as u32)
            .map(|kind| {
                let words = self.rows.look_up(&kind.to_le_bytes())?.ok_or_else(|| {
                    Error::verify(format!("latencies of requests: no row {kind}"))
                })?;
                let mut sum = vec![0; ROW_WORDS];
                for processor in words.chunks(words.len() / self.processors) {
                    sum.iter_mut().zip(processor).for_each(|(s, n)| *s += n);
                }
                Ok((sum[0], sum[1..].to_vec()))
            })
            .collect()
    }
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
fn complete(rows: i32, at: &Offsets, major: i32, minor: i32) -> Vec<Instruction> {
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
    p.load(Four, R8, R6, at.flags);
    p.constant(And, R8, KIND);
    p.jump_if(R8, Below, KINDS.len() as i32 - 1, "kind");
    p.constant(Move, R8, KINDS.len() as i32 - 1);
    p.label("kind");
    p.load(Eight, R9, R6, at.started);
    p.jump_if(R9, Equal, 0, "out"); // accounting is switched off for this queue
    p.call(TimeNs);
    p.register(Move, R7, R0);
    p.register(Sub, R7, R9);
    p.jump_if(R7, SignedBelow, 0, "out");
    p.store(Four, R10, -4, R8);
    p.register(Move, R2, R10);
    p.constant(Add, R2, -4);
    p.map(R1, rows);
    p.call(MapLookup);
    p.jump_if(R0, Equal, 0, "out");
    p.load(Eight, R1, R0, 0);
    p.register(Add, R1, R7);
    p.store(Eight, R0, 0, R1);
    bar_of_r7(&mut p);
    p.jump_if(R2, Above, BARS as i32 - 1, "out");
    p.constant(ShiftLeft, R2, 3);
    p.register(Add, R0, R2);
    p.load(Eight, R1, R0, 8);
    p.constant(Add, R1, 1);
    p.store(Eight, R0, 8, R1);
    p.label("out");
    p.constant(Move, R0, 0);
    p.exit();
    p.finish()
}
