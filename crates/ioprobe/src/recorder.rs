//! Latencies of one operation: a fast, mutable recorder, and the distribution that it becomes.
//!
//! The recorder counts clock ticks, not nanoseconds: bars are converted to times once, at the end,
//! and not for every operation. The bars are those of an HDR histogram (Tene, hdrhistogram.org):
//! 1024 of equal width per power of two. So every value is accurate to a thousandth, and a bar's
//! index is a shift and an addition. All memory is allocated and faulted in before the clock
//! starts: recording neither allocates nor faults.

pub use iotrace::bars::{bar_of, quantile, top_of};
use serde::Serialize;

use crate::clock::Clock;
use crate::prefault::ask_for;

/// Bars per power of two, as a power of two.
pub const FINENESS: u32 = 10;
/// Longer times count as this one: 2^40 ticks are over three minutes on the fastest existing clock.
const LONGEST: u64 = (1 << 40) - 1;
pub const BARS: usize = bar_of(LONGEST, FINENESS) + 1;

pub struct LatencyRecorder {
    /// With one more at the end, which is no bar.
    bars: Vec<u64>,
    /// The bar of the value recorded last, which is counted with the next one. Work that moves much
    /// data evicts the bars from the near CPU caches: prefetched now, the bar is there by then, and
    /// nothing waits for it (saves 16 ns here).
    pending: usize,
    total_ticks: u64,
    min_ticks: u64,
    max_ticks: u64,
}

/// The latencies of one operation, in nanoseconds; percentiles are accurate to 0.1 %.
#[derive(Debug, PartialEq, Serialize)]
pub struct Latency {
    pub count: u64,
    pub total_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub p9999_ns: u64,
    pub p99999_ns: u64,
    /// (highest value in the bar, count); empty unless requested.
    pub histogram: Vec<(u64, u64)>,
}

impl LatencyRecorder {
    pub fn new() -> Self {
        let mut bars = Vec::with_capacity(BARS + 1);
        // Ones first: zeroed memory alone would be the kernel's shared zero page, and would fault
        // in the timed part.
        bars.resize(BARS + 1, 1);
        bars.fill(0);
        LatencyRecorder {
            bars,
            pending: BARS,
            total_ticks: 0,
            min_ticks: u64::MAX,
            max_ticks: 0,
        }
    }

    /// A recorder that will record nothing, and takes almost no memory.
    pub fn idle() -> Self {
        LatencyRecorder {
            bars: vec![0],
            pending: 0,
            total_ticks: 0,
            min_ticks: u64::MAX,
            max_ticks: 0,
        }
    }

    #[inline(always)]
    pub fn record(&mut self, ticks: u64) {
        self.bars[self.pending] += 1;
        self.pending = bar_of(ticks.min(LONGEST), FINENESS);
        ask_for(&self.bars[self.pending]);
        self.total_ticks += ticks;
        self.min_ticks = self.min_ticks.min(ticks);
        self.max_ticks = self.max_ticks.max(ticks);
    }

    pub fn total_ticks(&self) -> u64 {
        self.total_ticks
    }

    /// Merge the recordings of another recorder.
    pub fn absorb(&mut self, other: LatencyRecorder) {
        for (mine, its) in self.bars.iter_mut().zip(&other.bars) {
            *mine += its;
        }
        if let Some(pending) = self.bars.get_mut(other.pending) {
            *pending += 1;
        }
        self.total_ticks += other.total_ticks;
        self.min_ticks = self.min_ticks.min(other.min_ticks);
        self.max_ticks = self.max_ticks.max(other.max_ticks);
    }

    /// End the recording. `stretched_ns` is the slowdown that the positive control injected: it is
    /// added to the total, not to the percentiles.
    pub fn finish(mut self, clock: &Clock, stretched_ns: u64, with_histogram: bool) -> Latency {
        self.bars[self.pending] += 1;
        self.bars.pop();
        let count = self.bars.iter().sum();
        let at = |q: f64| {
            // The upper end of a bar may be above all values.
            let ticks = quantile(&self.bars, FINENESS, count, q).min(self.max_ticks);
            clock.ns_of(ticks)
        };
        let mut histogram: Vec<(u64, u64)> = Vec::new();
        for (bar, n) in self.bars.iter().enumerate().filter(|(_, n)| **n > 0) {
            if !with_histogram {
                break;
            }
            let ns = clock.ns_of(top_of(bar, FINENESS));
            match histogram.last_mut() {
                // Several bars may round to the same nanosecond.
                Some((same, so_far)) if *same == ns => *so_far += n,
                _ => histogram.push((ns, *n)),
            }
        }
        Latency {
            count,
            total_ns: clock.ns_of(self.total_ticks) + stretched_ns,
            min_ns: if count == 0 {
                0
            } else {
                clock.ns_of(self.min_ticks)
            },
            max_ns: clock.ns_of(self.max_ticks),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            p9999_ns: at(0.9999),
            p99999_ns: at(0.99999),
            histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_recorders_together_are_the_one_that_had_recorded_all() {
        let [mut one, mut other, mut all] = [(); 3].map(|_| LatencyRecorder::new());
        for value in 0..5000_u64 {
            let ticks = value * value % 77_777;
            // the shortest of all is in the other
            if value % 3 == 0 { &mut other } else { &mut one }.record(ticks);
            all.record(ticks);
        }
        one.absorb(other);
        one.absorb(LatencyRecorder::new());
        let finish = |recorder: LatencyRecorder| recorder.finish(&Clock::monotonic(), 0, true);
        assert_eq!(finish(one), finish(all));
    }

    fn recorded(values: &[u64]) -> Latency {
        let mut recorder = LatencyRecorder::new();
        values.iter().for_each(|v| recorder.record(*v));
        recorder.finish(&Clock::monotonic(), 0, true) // a tick is a nanosecond
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values_within_a_thousandth() {
        let mut state = 1_u64;
        let mut values: Vec<u64> = (0..500_000)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                // From some 10 ns to some 10 s, evenly in the exponent.
                10_u64.pow(1 + (state >> 60) as u32 % 9) + (state >> 34) % 1000
            })
            .collect();
        let latency = recorded(&values);
        values.sort_unstable();
        let truth = |q: f64| values[((values.len() as f64 * q).ceil() as usize).max(1) - 1];
        for (found, q) in [
            (latency.p50_ns, 0.5),
            (latency.p90_ns, 0.9),
            (latency.p99_ns, 0.99),
            (latency.p999_ns, 0.999),
            (latency.p9999_ns, 0.9999),
            (latency.p99999_ns, 0.99999),
        ] {
            let wanted = truth(q) as f64;
            assert!(
                (found as f64 - wanted).abs() <= wanted / 1000.0,
                "{q}: {found} {wanted}"
            );
        }
        assert_eq!(latency.count, 500_000);
        assert_eq!(latency.total_ns, values.iter().sum::<u64>());
        assert_eq!(latency.min_ns, values[0]);
        assert_eq!(latency.max_ns, *values.last().unwrap());
        assert_eq!(
            latency.histogram.iter().map(|bar| bar.1).sum::<u64>(),
            500_000
        );
    }

    #[test]
    fn bars_follow_each_other_without_gap_and_hold_their_own_tops() {
        let mut low = 0;
        for bar in 0..BARS {
            let top = top_of(bar, FINENESS);
            assert_eq!(bar_of(low, FINENESS), bar, "{low}");
            assert_eq!(bar_of(top, FINENESS), bar, "{top}");
            assert!((top - low) as f64 <= low as f64 / 1000.0, "{low} {top}");
            low = top + 1;
        }
        assert_eq!(low, LONGEST + 1);
    }

    #[test]
    fn bars_are_those_of_the_published_hdr_histogram() {
        let mut peer = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1 << 39, 3).unwrap();
        let mut values = Vec::new();
        for exponent in 0..38 {
            for part in [0, 1, 2, 511, 1023] {
                values.push((1 << exponent) + (part << exponent) / 1024);
            }
        }
        values.iter().for_each(|v| peer.record(*v).unwrap());
        let wanted: Vec<(u64, u64)> = (peer.iter_recorded())
            .map(|bar| (bar.value_iterated_to(), bar.count_at_value()))
            .collect();
        assert_eq!(recorded(&values).histogram, wanted);
    }

    #[test]
    fn nothing_recorded_is_all_zeros() {
        let idle = LatencyRecorder::idle().finish(&Clock::monotonic(), 0, true);
        for latency in [recorded(&[]), idle] {
            let found = (latency.count, latency.min_ns, latency.max_ns);
            assert_eq!((found, latency.p50_ns), ((0, 0, 0), 0));
        }
    }

    #[test]
    fn a_latency_beyond_the_bounds_is_counted() {
        let latency = recorded(&[5, LONGEST * 4]);
        assert_eq!(latency.count, 2);
        assert_eq!(latency.max_ns, LONGEST * 4);
    }

    #[test]
    fn no_percentile_is_above_the_longest() {
        let value = 1_000_001; // its bar ends higher
        assert!(top_of(bar_of(value, FINENESS), FINENESS) > value);
        let latency = recorded(&[value]);
        assert_eq!(
            (latency.p50_ns, latency.p99999_ns, latency.max_ns),
            (value, value, value)
        );
    }

    #[test]
    fn the_stretch_is_in_the_total_alone() {
        let mut recorder = LatencyRecorder::new();
        recorder.record(100);
        let latency = recorder.finish(&Clock::monotonic(), 6, false);
        assert_eq!((latency.total_ns, latency.p50_ns), (106, 100));
    }
}
