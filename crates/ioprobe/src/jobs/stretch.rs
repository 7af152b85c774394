//! The positive control: time spun away in proportion to work that was done.
//!
//! A spin ends at a reading of the clock, and readings come in steps: 20 to 60 ns of the TSC, several hundred of the CPU
//! clock. Ending at the first reading past the mark makes every spin half a step too long, which is 1 % of a work of
//! 2 us. So a spin ends at the reading that is nearest to its mark, and what it missed by is owed to the next one: single
//! stretches are right to a step, and their mean is right to what is owed at the end.

use serde::Serialize;

use crate::clock::{thread_cpu_ns, Clock};
use crate::protocol::StretchClock;

/// Readings from which the usual step of a clock is found at the start.
const READINGS: usize = 257;
/// So many steps may be owed. A spin that lost the processor is far longer than asked for, and is not made good: the work
/// loses it as often.
const MOST_STEPS_OWED: f64 = 4.0;

pub struct Stretch {
    clock: Clock,
    wall: Debt,
    cpu: Debt,
}

/// What one job was to be stretched by, and what it was.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spun {
    /// What the stretch is in proportion to, on the clock that was asked for.
    #[serde(skip)]
    pub base_ns: u64,
    /// What was spun on that clock.
    #[serde(skip)]
    pub own_ns: u64,
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

impl Spun {
    pub fn add(&mut self, more: &Spun) {
        self.base_ns += more.base_ns;
        self.own_ns += more.own_ns;
        self.wall_ns += more.wall_ns;
        self.cpu_ns += more.cpu_ns;
    }

    /// Stretched time over unstretched time; 1 where nothing was measured that could be stretched.
    pub fn injected(&self) -> f64 {
        match self.base_ns {
            0 => 1.0,
            base => 1.0 + self.own_ns as f64 / base as f64,
        }
    }
}

impl Stretch {
    /// Finds the steps of both clocks; takes some 50 us.
    pub fn new(clock: Clock) -> Self {
        Stretch {
            clock,
            wall: Debt::of_step(usual_step(|| clock.ticks())),
            cpu: Debt::of_step(usual_step(thread_cpu_ns)),
        }
    }

    /// Stretches a piece of work that took so long by either clock. What passes between its end and the spin belongs to
    /// neither: the first reading after the work comes late by cold code, 100 ns and more.
    pub fn after(&mut self, wall_ticks: u64, cpu_ns: u64, stretch: f64, by: StretchClock) -> Spun {
        if stretch == 0.0 {
            return Spun::default();
        }
        let clock = self.clock;
        match by {
            StretchClock::Wall => {
                let start = thread_cpu_ns();
                let wanted = wall_ticks as f64 * stretch;
                let spun = clock.ns_of(self.wall.spin(|| clock.ticks(), wanted));
                Spun {
                    base_ns: clock.ns_of(wall_ticks),
                    own_ns: spun,
                    wall_ns: spun,
                    cpu_ns: thread_cpu_ns() - start,
                }
            }
            StretchClock::Cpu => {
                let start = clock.ticks();
                let spun = self.cpu.spin(thread_cpu_ns, cpu_ns as f64 * stretch);
                Spun {
                    base_ns: cpu_ns,
                    own_ns: spun,
                    wall_ns: clock.ns_between(start, clock.ticks()),
                    cpu_ns: spun,
                }
            }
        }
    }
}

/// One clock's step, and what its spins so far fell short of their marks; both in its own ticks.
struct Debt {
    step: f64,
    owed: f64,
}

impl Debt {
    fn of_step(step: u64) -> Self {
        Debt {
            step: step as f64,
            owed: 0.0,
        }
    }

    /// Spins for `wanted`, to the nearest reading and with what is owed; returns how long it was.
    fn spin(&mut self, read: impl Fn() -> u64, wanted: f64) -> u64 {
        if wanted <= 0.0 {
            return 0;
        }
        let mark = wanted + self.owed;
        let enough = (mark - self.step / 2.0).ceil().max(0.0) as u64;
        let mut spun = 0;
        if enough > 0 {
            let start = read();
            while spun < enough {
                spun = read().saturating_sub(start);
            }
        }
        let most = MOST_STEPS_OWED * self.step;
        self.owed = (mark - spun as f64).clamp(-most, most);
        spun
    }
}

/// The median distance of successive readings.
fn usual_step(read: impl Fn() -> u64) -> u64 {
    let mut readings = [0; READINGS];
    for reading in &mut readings {
        *reading = read();
    }
    let mut steps: Vec<u64> = (readings.windows(2))
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .collect();
    steps.sort_unstable();
    steps[steps.len() / 2].max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A clock whose readings are so many ticks apart.
    fn stepping(step: u64) -> impl Fn() -> u64 {
        let now = Cell::new(0);
        move || {
            now.set(now.get() + step);
            now.get()
        }
    }

    #[test]
    fn what_one_spin_misses_the_next_ones_make_good() {
        let read = stepping(50);
        let mut debt = Debt {
            step: 50.0,
            owed: 0.0,
        };
        let mut total = 0;
        for _ in 0..1000 {
            let spun = debt.spin(&read, 121.5);
            assert!((100..=150).contains(&spun), "{spun}");
            total += spun;
        }
        assert!((total as f64 - 121_500.0).abs() <= 25.0, "{total}");
    }

    #[test]
    fn a_stretch_below_the_clocks_step_is_right_in_the_mean() {
        let read = stepping(50);
        let mut debt = Debt {
            step: 50.0,
            owed: 0.0,
        };
        let total: u64 = (0..1000).map(|_| debt.spin(&read, 7.0)).sum();
        assert!((total as f64 - 7_000.0).abs() <= 50.0, "{total}");
    }

    #[test]
    fn a_spin_that_lost_the_processor_is_not_made_good() {
        let mut debt = Debt {
            step: 50.0,
            owed: 0.0,
        };
        assert_eq!(debt.spin(stepping(1_000_000), 120.0), 1_000_000);
        assert_eq!(debt.owed, -200.0);
        assert_eq!(debt.spin(stepping(1), 400.0), 175);
    }

    #[test]
    fn no_stretch_reads_no_clock() {
        let mut debt = Debt {
            step: 50.0,
            owed: 30.0,
        };
        assert_eq!(debt.spin(|| unreachable!(), 0.0), 0);
    }

    #[test]
    fn the_median_step_is_not_moved_by_an_interruption() {
        let now = Cell::new(0_u64);
        let read = || {
            now.set(now.get() + if now.get() == 80 { 1_000_000 } else { 40 });
            now.get()
        };
        assert_eq!(usual_step(read), 40);
    }
}
