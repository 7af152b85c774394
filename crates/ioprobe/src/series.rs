//! What happened in each second of a timed part: a coarse histogram per second, in memory allocated
//! before the clock starts.
//!
//! A stall, write-back or a warming cache shows over time and not in overall percentiles. Each
//! second has 32 bars per power of two (accurate to 3 %); recording costs one more count per
//! operation. Operations after the last second that fits are counted in that second.

use serde::Serialize;

use crate::clock::Clock;
use crate::recorder::{bar_of, quantile};

const FINENESS: u32 = 5;
const LONGEST: u64 = (1 << 40) - 1;
const BARS: usize = bar_of(LONGEST, FINENESS) + 1;
/// Ten minutes take 3 MiB.
pub const MOST_SECONDS: usize = 600;

pub struct Series {
    /// Ticks per second, and the ticks at which the current one ends.
    second: u64,
    end: u64,
    at: usize,
    bars: Vec<u32>,
    longest: Vec<u64>,
}

/// One second, as reported in the answer.
#[derive(Debug, Serialize)]
pub struct Second {
    pub count: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl Series {
    /// Create a series with room for this many seconds; none if 0.
    pub fn of(seconds: usize, clock: &Clock) -> Self {
        let room = seconds.min(MOST_SECONDS);
        let mut bars = Vec::with_capacity(room * BARS);
        bars.resize(room * BARS, 1);
        bars.fill(0);
        Series {
            second: clock.hz(),
            end: 0,
            at: 0,
            bars,
            longest: vec![0; room],
        }
    }

    pub fn is_kept(&self) -> bool {
        !self.longest.is_empty()
    }

    /// Set the clock reading at which the first second begins.
    pub fn begin(&mut self, start: u64) {
        self.end = start + self.second;
    }

    /// Count an operation that ended at a clock reading.
    #[inline(always)]
    pub fn record(&mut self, now: u64, ticks: u64) {
        if now >= self.end {
            self.turn(now);
        }
        self.bars[self.at * BARS + bar_of(ticks.min(LONGEST), FINENESS)] += 1;
        self.longest[self.at] = self.longest[self.at].max(ticks);
    }

    #[cold]
    fn turn(&mut self, now: u64) {
        let passed = 1 + (now - self.end) / self.second;
        self.end += passed * self.second;
        self.at = (self.at as u64 + passed).min(self.longest.len() as u64 - 1) as usize;
    }

    /// Return all seconds up to the last operation.
    pub fn seconds(&self, clock: &Clock) -> Vec<Second> {
        let seconds = self
            .longest
            .iter()
            .take(self.at + 1)
            .zip(self.bars.chunks(BARS));
        seconds
            .map(|(longest, bars)| {
                let count = bars.iter().map(|n| u64::from(*n)).sum();
                let at = |q| clock.ns_of(quantile(bars, FINENESS, count, q).min(*longest));
                Second {
                    count,
                    p50_ns: at(0.5),
                    p99_ns: at(0.99),
                    max_ns: clock.ns_of(*longest),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorder::top_of;

    const SECOND: u64 = 1_000_000_000;

    fn series(seconds: usize, operations: &[(u64, u64)]) -> Vec<Second> {
        let clock = Clock::monotonic();
        let mut series = Series::of(seconds, &clock);
        series.begin(5);
        operations
            .iter()
            .for_each(|(now, ns)| series.record(5 + now, *ns));
        series.seconds(&clock)
    }

    fn counts(series: &[Second]) -> Vec<u64> {
        series.iter().map(|second| second.count).collect()
    }

    #[test]
    fn an_operation_counts_to_the_second_in_which_it_ended() {
        let ends = [0, SECOND - 1, SECOND, 3 * SECOND + 7].map(|now| (now, 100));
        assert_eq!(counts(&series(10, &ends)), [2, 1, 0, 1]);
    }

    #[test]
    fn what_comes_after_the_last_second_counts_to_it() {
        let ends = [0, 2 * SECOND, 9 * SECOND, 11 * SECOND].map(|now| (now, 100));
        assert_eq!(counts(&series(3, &ends)), [1, 0, 3]);
    }

    #[test]
    fn percentiles_of_a_second_are_good_to_a_thirtieth_and_its_longest_exactly() {
        let operations: Vec<_> = (1..=1000).rev().map(|ns| (1, ns * 1000)).collect();
        let second = &series(1, &operations)[0];
        for (found, wanted) in [(second.p50_ns, 500e3), (second.p99_ns, 990e3)] {
            let found = found as f64;
            assert!(found >= wanted && found <= wanted * 1.032, "{found}");
        }
        assert_eq!(second.max_ns, 1_000_000);
        assert!(top_of(BARS - 1, FINENESS) == LONGEST);
    }
}
