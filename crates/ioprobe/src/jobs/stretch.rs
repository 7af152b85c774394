//! The positive control: a known slowdown, injected by spinning in proportion to the work.
//!
//! A spin ends at a clock reading, and readings come in steps: 20 to 60 ns for the TSC, several
//! hundred for the CPU clock. Ending at the first reading past the target would make every spin
//! half a step too long, which is 1 % of a work of 2 us. So a spin ends at the reading nearest to
//! its target, and the error is carried over to the next one. A single slowdown is exact to one
//! step; their mean is exact to the error carried over at the end.

use serde::Serialize;

use crate::clock::{thread_cpu_ns, Clock};
use crate::protocol::StretchClock;

/// Number of readings from which the usual step of a clock is determined at the start.
const READINGS: usize = 257;
/// Limit, in steps, on the carried-over error. A spin that was preempted is far too long. That is
/// not compensated: the work is preempted equally often.
const MOST_STEPS_OWED: f64 = 4.0;

pub struct Stretch {
    clock: Clock,
    wall: Debt,
    cpu: Debt,
}

/// The slowdown of one job: what it is proportional to, and the time spun.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Spun {
    /// The time that the slowdown is proportional to, on the requested clock.
    #[serde(skip)]
    pub base_ns: u64,
    /// The time spun on that clock.
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

    /// Return slowed-down time over original time; 1 if nothing was measured that could be slowed
    /// down.
    pub fn injected(&self) -> f64 {
        match self.base_ns {
            0 => 1.0,
            base => 1.0 + self.own_ns as f64 / base as f64,
        }
    }
}

impl Stretch {
    /// Determine the steps of both clocks; takes some 50 us.
    pub fn new(clock: Clock) -> Self {
        Stretch {
            clock,
            wall: Debt::of_step(usual_step(|| clock.ticks())),
            cpu: Debt::of_step(usual_step(thread_cpu_ns)),
        }
    }

    /// Slow down a piece of work that took this long by either clock. The time between its end and
    /// the spin belongs to neither: cold code delays the first reading after the work by 100 ns and
    /// more.
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

/// The step of one clock, and the error carried over from its spins so far, both in ticks of that
/// clock.
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

    /// Spin for `wanted` plus the carried-over error, to the nearest reading. Returns the time
    /// spun.
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

/// Return the median distance between successive readings.
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

    /// A clock with readings `step` ticks apart.
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
