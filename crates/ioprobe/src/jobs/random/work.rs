//! The timed part of the `random` job by pread and pwrite, or by mmap: one operation at a time.
//!
//! Between the first and last operation there are only the calls of the work itself, one clock read
//! each, and the recording. The latency of an operation runs from the end of the previous one to
//! its own end; with open arrivals, from its intended start.

use libc::{c_int, c_long, off_t};

use super::layout::{Layout, Place};
use super::memory::Image;
use crate::clock::Clock;
use crate::error::last_errno;
use crate::jobs::region::Region;
use crate::jobs::stopwatch::Span;
use crate::protocol::{Engine, RandomJob};
use crate::recorder::LatencyRecorder;
use crate::series::Series;

pub struct Work {
    pub engine: Engine,
    pub layout: Layout,
    pub pace: Pace,
    pub descriptors: Vec<c_int>,
    /// All whole blocks of each file; used only by `mmap`.
    pub mappings: Vec<Region>,
    pub image: Option<Image>,
    /// One block for each operation that may be in flight.
    pub buffers: Region,
    pub tally: Tally,
}

/// Measurements taken while working.
pub struct Tally {
    pub reads: LatencyRecorder,
    pub writes: LatencyRecorder,
    /// Delay from the intended to the actual start of an operation; open arrivals only.
    pub late: LatencyRecorder,
    pub series: Series,
    /// Sum over all reads of the block's first eight bytes XOR the word drawn for it.
    pub sum: u64,
    /// Number of operations done.
    pub done: u64,
    /// Number of system calls made for them.
    pub calls: u64,
}

/// The operation that failed: an errno, or a short transfer in bytes.
#[derive(Debug)]
pub struct Broken {
    pub place: Option<Place>,
    pub outcome: Outcome,
}

#[derive(Debug)]
pub enum Outcome {
    Errno(i32),
    Short(u64),
}

impl Tally {
    /// Allocate only the recorders that are needed: clearing their memory evicts other data from
    /// the CPU caches.
    pub fn new(share: f64, is_open: bool, series: Series) -> Self {
        let recorder = |wanted: bool| match wanted {
            true => LatencyRecorder::new(),
            false => LatencyRecorder::idle(),
        };
        Tally {
            reads: recorder(share < 1.0),
            writes: recorder(share > 0.0),
            late: recorder(is_open),
            series,
            sum: 0,
            done: 0,
            calls: 0,
        }
    }

    /// Count an operation that started (or should have) at `from`, ended at `now`, and has its
    /// block in `buffer`.
    #[inline(always)]
    pub fn count(&mut self, place: &Place, from: u64, now: u64, buffer: *const u8) {
        let ticks = now.saturating_sub(from);
        self.done += 1;
        if place.write {
            self.writes.record(ticks);
        } else {
            // SAFETY: a buffer is a block, and no block is shorter than a word.
            self.sum = (self.sum)
                .wrapping_add(unsafe { buffer.cast::<u64>().read_unaligned() } ^ place.draw);
            self.reads.record(ticks);
        }
        if self.series.is_kept() {
            self.series.record(now, ticks);
        }
    }
}

impl Work {
    pub fn perform(&mut self, clock: &Clock) -> Result<Span, Broken> {
        if self.pace.is_open() {
            self.work_through::<true>(clock)
        } else {
            self.work_through::<false>(clock)
        }
    }

    fn work_through<const OPEN: bool>(&mut self, clock: &Clock) -> Result<Span, Broken> {
        let mut sequence = self.layout.sequence();
        let start = clock.ticks();
        let end = self.pace.end(start);
        let mut last = start;
        self.tally.series.begin(start);
        let mut n = 0;
        while n < self.pace.operations && last < end {
            let place = sequence.step();
            let mut from = last;
            if OPEN {
                from = self.pace.due(start, n);
                if from >= end {
                    break;
                }
                while last < from {
                    last = clock.ticks();
                }
                self.tally.late.record(last - from);
            }
            let moved = transfer(
                self.engine,
                &place,
                &self.descriptors,
                &self.mappings,
                &self.image,
                (self.buffers.at(0), self.layout.block as usize),
            );
            if moved != self.layout.block as c_long {
                return Err(broken(place, moved));
            }
            last = clock.ticks();
            self.tally.count(&place, from, last, self.buffers.at(0));
            n += 1;
        }
        if self.engine == Engine::Psync {
            self.tally.calls = n;
        }
        Ok(Span { start, end: last })
    }
}

/// Transfer one block. Returns the number of bytes, or a negative number with errno set.
#[inline(always)]
fn transfer(
    engine: Engine,
    place: &Place,
    descriptors: &[c_int],
    mappings: &[Region],
    image: &Option<Image>,
    (buffer, block): (*mut u8, usize),
) -> c_long {
    let file = place.file as usize;
    let source = match image {
        Some(image) if place.write => image.at(place.file, place.offset),
        _ => std::ptr::null(),
    };
    // SAFETY: buffer and source hold a block; a mapping holds all whole blocks of its file.
    unsafe {
        match engine {
            Engine::Mmap => {
                let mapped = mappings[file].at(place.offset as usize);
                if place.write {
                    std::ptr::copy_nonoverlapping(source, mapped, block);
                } else {
                    std::ptr::copy_nonoverlapping(mapped, buffer, block);
                }
                block as c_long
            }
            _ if place.write => {
                let at = place.offset as off_t;
                libc::pwrite(descriptors[file], source.cast(), block, at) as c_long
            }
            _ => {
                let at = place.offset as off_t;
                libc::pread(descriptors[file], buffer.cast(), block, at) as c_long
            }
        }
    }
}

#[cold]
fn broken(place: Place, moved: c_long) -> Broken {
    Broken {
        place: Some(place),
        outcome: match moved {
            n if n < 0 => Outcome::Errno(last_errno()),
            n => Outcome::Short(n as u64),
        },
    }
}

// Pacing: when operations start, and when no more do.
//
// Closed loop: the next operation starts when one has ended, so a stall delays all later ones. Open
// arrivals: the rate alone sets each intended start, and latency counts from there, so that the
// waiting time of arrivals during a stall is measured (Schroeder, Wierman, Harchol-Balter, NSDI
// 2006).

/// Fractional bits of a tick in a period.
const PARTS: u32 = 20;

pub struct Pace {
    /// Upper limit on the number of operations.
    pub operations: u64,
    /// Ticks after which no more operations start.
    ticks: u64,
    /// Time between two intended starts, in 2^-PARTS ticks; None for a closed loop.
    period: Option<u64>,
}

impl Pace {
    pub fn of(own: &RandomJob, replicates: u32, clock: &Clock) -> Self {
        let ticks_of = |seconds: f64| seconds * clock.hz() as f64;
        Pace {
            operations: own
                .operations
                .map_or(u64::MAX, |n| n.saturating_mul(u64::from(replicates))),
            ticks: own.time_s.map_or(u64::MAX, |s| ticks_of(s) as u64),
            period: (own.rate)
                .map(|rate| (ticks_of(1.0 / rate) * 2_f64.powi(PARTS as i32)).round() as u64),
        }
    }

    /// A closed loop of this many operations.
    pub fn closed(operations: u64) -> Self {
        Pace {
            operations,
            ticks: u64::MAX,
            period: None,
        }
    }

    pub fn end(&self, start: u64) -> u64 {
        start.saturating_add(self.ticks)
    }

    /// Return the intended start of operation `n` (from 0) of open arrivals.
    #[inline(always)]
    pub fn due(&self, start: u64, n: u64) -> u64 {
        let period = self.period.unwrap_or(0);
        start.saturating_add(((u128::from(period) * u128::from(n)) >> PARTS) as u64)
    }

    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.period.is_some()
    }
}

#[cfg(test)]
mod pace_tests {
    use super::*;

    #[test]
    fn intended_starts_follow_the_rate_without_drift() {
        let pace = Pace {
            operations: 1,
            ticks: u64::MAX,
            period: Some(((1e9 / 3.0) * 2_f64.powi(PARTS as i32)).round() as u64),
        };
        assert_eq!(pace.due(7, 0), 7);
        // After three million periods of a third of a second, the error is at most their
        // accumulated rounding.
        let due = pace.due(7, 3_000_000);
        assert!(due.abs_diff(1_000_000_000_000_007) <= 2, "{due}");
        assert_eq!(pace.end(9), u64::MAX);
    }
}
