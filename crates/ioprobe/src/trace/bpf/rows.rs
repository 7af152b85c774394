//! Rows of counts, written by BPF programs and read by the probe: the total of all times, one count
//! per bar, and the number of untimed events.
//!
//! Each CPU has its own row, so that no count is lost when two CPUs count at the same time.

use std::os::unix::io::AsRawFd;

use super::assembler::{Assembler, Helper, If, Operation, Register, Size};
use super::kernel::{Map, MapKind, MapShape};
use crate::error::{Error, Result};
use crate::trace::call::{Times, BARS, LONGEST_NS};

use Helper::MapLookup;
use If::{Above, Below, Equal, SignedBelow};
use Operation::{Add, And, Move, ShiftLeft, ShiftRight, Sub};
use Register::{R0, R1, R10, R2, R3, R4, R7};
use Size::{Eight, Four};

const ROW_WORDS: usize = 2 + BARS;
const UNTIMED: i32 = BARS as i32;

pub struct Rows {
    map: Map,
    processors: usize,
}

impl Rows {
    pub fn make(count: u32, processors: usize) -> Result<Self> {
        let shape = MapShape {
            kind: MapKind::PerProcessorArray,
            key: 4,
            value: 8 * ROW_WORDS as u32,
            entries: count,
        };
        Ok(Rows {
            map: Map::make(&shape, None, processors)?,
            processors,
        })
    }

    pub fn descriptor(&self) -> i32 {
        self.map.fd.as_raw_fd()
    }

    /// Sum up a row over all CPUs.
    pub fn read(&self, number: u32) -> Result<Times> {
        let words = self
            .map
            .look_up(&number.to_le_bytes())?
            .ok_or_else(|| Error::verify(format!("read BPF counters: row {number} is missing")))?;
        let mut sum = [0; ROW_WORDS];
        for processor in words.chunks(words.len() / self.processors) {
            sum.iter_mut().zip(processor).for_each(|(s, n)| *s += n);
        }
        Ok(Times {
            total_ns: sum[0],
            bars: sum[1..=BARS].to_vec(),
            untimed: sum[1 + BARS],
        })
    }
}

/// R0 = this CPU's row of number R1, or 0. Changes R1 to R5, like all calls.
pub fn find(p: &mut Assembler, rows: i32) {
    p.store(Four, R10, -4, R1);
    p.register(Move, R2, R10);
    p.constant(Add, R2, -4);
    p.map(R1, rows);
    p.call(MapLookup);
}

/// Add one to the row R0: the time in R7 and its bar or, if that is negative, an untimed event.
/// Changes R0 to R4.
pub fn add_r7(p: &mut Assembler) {
    p.jump_if(R7, SignedBelow, 0, "no time");
    p.load(Eight, R1, R0, 0);
    p.register(Add, R1, R7);
    p.store(Eight, R0, 0, R1);
    bar_of_r7(p);
    p.jump("tally");
    p.label("no time");
    p.constant(Move, R2, UNTIMED);
    p.label("tally");
    // Never the case, but the kernel's verifier needs the check.
    p.jump_if(R2, Above, UNTIMED, "out");
    p.constant(ShiftLeft, R2, 3);
    p.register(Add, R0, R2);
    p.load(Eight, R1, R0, 8);
    p.constant(Add, R1, 1);
    p.store(Eight, R0, 8, R1);
}

/// R2 = the bar of the time in R7. Finds the highest bit by bisection; `call::longest_ns` is the
/// inverse.
fn bar_of_r7(p: &mut Assembler) {
    p.wide(R1, LONGEST_NS);
    p.jump_if_register(R7, Above, R1, "longest");
    p.register(Move, R1, R7);
    p.label("longest");
    p.register(Move, R2, R1);
    p.jump_if(R1, Below, 4, "bar");
    p.constant(Move, R2, 0);
    p.register(Move, R3, R1);
    for (bits, label) in [
        (32, "32"),
        (16, "16"),
        (8, "8"),
        (4, "4"),
        (2, "2"),
        (1, "1"),
    ] {
        p.register(Move, R4, R3);
        p.constant(ShiftRight, R4, bits);
        p.jump_if(R4, Equal, 0, label);
        p.register(Move, R3, R4);
        p.constant(Add, R2, bits);
        p.label(label);
    }
    p.register(Move, R3, R2);
    p.constant(Sub, R3, 2);
    p.register(ShiftRight, R1, R3);
    p.constant(And, R1, 3);
    p.constant(Sub, R2, 1);
    p.constant(ShiftLeft, R2, 2);
    p.register(Add, R2, R1);
    p.label("bar");
}
