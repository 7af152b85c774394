//! Mean and quantiles of a stream of numbers, within 3 %, in a few kilobytes.

use serde::Serialize;

use crate::bars::{bar_of, quantile};

/// 2^5 bars per power of two.
const FINENESS: u32 = 5;
/// Larger numbers count as this one in the quantiles: 2^44 ns are five hours, 2^44 bytes 16 TiB.
const LARGEST: u64 = (1 << 44) - 1;

/// Quantiles are the upper ends of their bars, but never above `max`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    pub total: u64,
    pub mean: f64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub max: u64,
}

pub struct Spread {
    bars: Vec<u64>,
    count: u64,
    total: u64,
    max: u64,
}

impl Spread {
    pub fn new() -> Self {
        Spread {
            bars: Vec::new(),
            count: 0,
            total: 0,
            max: 0,
        }
    }

    pub fn record(&mut self, value: u64) {
        let bar = bar_of(value.min(LARGEST), FINENESS);
        if self.bars.len() <= bar {
            self.bars.resize(bar + 1, 0);
        }
        self.bars[bar] += 1;
        self.count += 1;
        self.total = self.total.saturating_add(value);
        self.max = self.max.max(value);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// None if nothing was recorded.
    pub fn quantiles(&self) -> Option<Quantiles> {
        let at = |q| quantile(&self.bars, FINENESS, self.count, q).min(self.max);
        (self.count > 0).then(|| Quantiles {
            total: self.total,
            mean: self.total as f64 / self.count as f64,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: self.max,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_values_within_a_thirtieth() {
        let mut values: Vec<u64> = (0..20_000_u64).map(|n| n * n % 1_000_003).collect();
        let mut spread = Spread::new();
        values.iter().for_each(|value| spread.record(*value));
        values.sort_unstable();
        let found = spread.quantiles().unwrap();
        for (q, found) in [(0.5, found.p50), (0.9, found.p90), (0.99, found.p99)] {
            let wanted = values[(q * 20_000.0) as usize - 1];
            assert!(
                found >= wanted && found as f64 <= wanted as f64 * 1.032,
                "{q}: {found} {wanted}"
            );
        }
        assert_eq!(found.max, values[19_999]);
        assert_eq!(found.total, values.iter().sum::<u64>());
    }

    #[test]
    fn nothing_recorded_has_no_quantiles_and_huge_values_are_counted() {
        let mut spread = Spread::new();
        assert_eq!(spread.quantiles(), None);
        spread.record(u64::MAX);
        spread.record(u64::MAX);
        let found = spread.quantiles().unwrap();
        assert_eq!((found.max, found.total), (u64::MAX, u64::MAX));
    }
}
