//! Latencies of one operation: a recorder that is hot and mutable, and the distribution that it becomes.
//!
//! The recorder is made, and every page of it touched, before the clock starts: while timing it neither allocates nor
//! faults. Its bounds are fixed (0 ns to 137 s, three digits), longer ones count as the highest.

use hdrhistogram::Histogram;
use serde_json::{json, Value};

use crate::clock::Clock;

/// 2^37 ns.
const HIGHEST_NS: u64 = 1 << 37;
const DIGITS: u8 = 3;

pub struct LatencyRecorder {
    histogram: Histogram<u64>,
    count: u64,
    /// In ticks of the clock: a sum of rounded nanoseconds would be off in one direction, where ticks come in steps.
    total_ticks: u64,
    min_ns: u64,
    max_ns: u64,
}

/// What is said about the latencies of one operation, in nanoseconds; percentiles are good to 0.1 %.
#[derive(Debug)]
pub struct Latency {
    pub count: u64,
    pub total_ns: u64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    /// (highest value that falls into the bar, count); empty unless asked for.
    pub histogram: Vec<(u64, u64)>,
}

impl LatencyRecorder {
    pub fn new() -> Self {
        let mut histogram = Histogram::new_with_bounds(1, HIGHEST_NS, DIGITS)
            .expect("fixed bounds are valid bounds");
        histogram.clear(); // writes every counter, so that no page of them is new to the timed part
        LatencyRecorder {
            histogram,
            count: 0,
            total_ticks: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }

    #[inline(always)]
    pub fn record(&mut self, ticks: u64, clock: &Clock) {
        let ns = clock.ns_of(ticks);
        self.count += 1;
        self.total_ticks += ticks;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.histogram.saturating_record(ns);
    }

    pub fn total_ticks(&self) -> u64 {
        self.total_ticks
    }

    /// Ends the recording. `stretched_ns` is what the positive control added: it is in the total, not in the percentiles.
    pub fn finish(self, clock: &Clock, stretched_ns: u64, with_histogram: bool) -> Latency {
        let at = |q: f64| {
            // The histogram answers with the upper end of a bar, which may lie above all values.
            self.histogram.value_at_quantile(q).min(self.max_ns)
        };
        let histogram = if with_histogram {
            self.histogram
                .iter_recorded()
                .map(|bar| (bar.value_iterated_to(), bar.count_at_value()))
                .collect()
        } else {
            Vec::new()
        };
        Latency {
            count: self.count,
            total_ns: clock.ns_of(self.total_ticks) + stretched_ns,
            min_ns: if self.count == 0 { 0 } else { self.min_ns },
            max_ns: self.max_ns,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            histogram,
        }
    }
}

impl Latency {
    pub fn to_json(&self) -> Value {
        json!({
            "count": self.count,
            "total_ns": self.total_ns,
            "min_ns": self.min_ns,
            "max_ns": self.max_ns,
            "p50_ns": self.p50_ns,
            "p90_ns": self.p90_ns,
            "p99_ns": self.p99_ns,
            "p999_ns": self.p999_ns,
            "histogram": self.histogram,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(values: &[u64]) -> Latency {
        let mut recorder = LatencyRecorder::new();
        let clock = Clock::monotonic(); // a tick is a nanosecond
        values.iter().for_each(|v| recorder.record(*v, &clock));
        recorder.finish(&clock, 0, true)
    }

    #[test]
    fn percentiles_are_those_of_the_sorted_values_within_a_thousandth() {
        let mut state = 1_u64;
        let mut values: Vec<u64> = (0..50_000)
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
        ] {
            let wanted = truth(q) as f64;
            assert!(
                (found as f64 - wanted).abs() <= wanted / 1000.0,
                "{q}: {found} {wanted}"
            );
        }
        assert_eq!(latency.count, 50_000);
        assert_eq!(latency.total_ns, values.iter().sum::<u64>());
        assert_eq!(latency.min_ns, values[0]);
        assert_eq!(latency.max_ns, *values.last().unwrap());
        assert_eq!(
            latency.histogram.iter().map(|bar| bar.1).sum::<u64>(),
            50_000
        );
    }

    #[test]
    fn nothing_recorded_is_all_zeros() {
        let latency = recorded(&[]);
        assert_eq!(
            (
                latency.count,
                latency.min_ns,
                latency.max_ns,
                latency.p50_ns
            ),
            (0, 0, 0, 0)
        );
    }

    #[test]
    fn a_latency_beyond_the_bounds_is_counted() {
        let latency = recorded(&[5, HIGHEST_NS * 4]);
        assert_eq!(latency.count, 2);
        assert_eq!(latency.max_ns, HIGHEST_NS * 4);
    }

    #[test]
    fn the_stretch_is_in_the_total_alone() {
        let mut recorder = LatencyRecorder::new();
        let clock = Clock::monotonic();
        recorder.record(100, &clock);
        let latency = recorder.finish(&clock, 6, false);
        assert_eq!((latency.total_ns, latency.p50_ns), (106, 100));
    }
}
