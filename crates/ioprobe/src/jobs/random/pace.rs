//! When operations start and when no more do.
//!
//! Closed: the next starts when one has ended, and a stall delays all that would have come. Open: each has an intended
//! start by the rate alone, and its latency counts from there, so that whoever comes during a stall is seen to wait
//! (Schroeder, Wierman, Harchol-Balter, NSDI 2006).

use crate::clock::Clock;
use crate::protocol::RandomJob;

/// Parts of a tick in which a period is counted, as a power of two.
const PARTS: u32 = 20;

pub struct Pace {
    /// So many operations at most.
    pub operations: u64,
    /// Ticks after which none is started any more.
    ticks: u64,
    /// Between two intended starts, in 2^-PARTS ticks; none where the loop is closed.
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

    /// So many operations, each when one before it has ended.
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

    /// The intended start of operation `n` (from 0) of open arrivals.
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
mod tests {
    use super::*;

    #[test]
    fn intended_starts_follow_the_rate_without_drift() {
        let pace = Pace {
            operations: 1,
            ticks: u64::MAX,
            period: Some(((1e9 / 3.0) * 2_f64.powi(PARTS as i32)).round() as u64),
        };
        assert_eq!(pace.due(7, 0), 7);
        // Three million thirds of a second later, off by no more than a period's rounding so many times.
        let due = pace.due(7, 3_000_000);
        assert!(due.abs_diff(1_000_000_000_000_007) <= 2, "{due}");
        assert_eq!(pace.end(9), u64::MAX);
    }
}
