//! The clock of all timed parts: the TSC if it is invariant, else the vDSO's CLOCK_MONOTONIC.
//!
//! Reading the TSC costs about 16 ns, reading through the vDSO twice that; an operation under test
//! may take 200 ns. The TSC is used only if the CPU declares it invariant (CPUID) and the kernel
//! has not removed it from its list of clock sources. Its rate is measured against
//! CLOCK_MONOTONIC_RAW, which no time daemon adjusts.

use std::{env, fs};

use crate::error::{Error, Result};

/// Minimum duration of the TSC calibration, and the maximum if the rate is not yet accurate enough.
const WATCH_NS: u64 = 10_000_000;
const LONGEST_WATCH_NS: u64 = 100_000_000;
/// Acceptable relative error of the rate. Each end of the calibration is known to half the time
/// that reading both clocks took.
const GOOD: f64 = 1e-5;
/// The environment variable that selects the clock; for tests, and for a TSC that is not as
/// declared.
const CHOICE: &str = "IOPROBE_CLOCK";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Tsc,
    Monotonic,
}

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    source: Source,
    hz: u64,
    /// Nanoseconds per tick, times 2^32.
    scale: u64,
    /// Maximum relative error of the rate.
    error: f64,
}

impl Clock {
    /// Return the clock that the environment selects: `monotonic`, or the best of this machine if
    /// it is not set.
    pub fn chosen() -> Result<Self> {
        match env::var_os(CHOICE) {
            None => Ok(Clock::best()),
            Some(word) if word == "monotonic" => Ok(Clock::monotonic()),
            Some(word) => Err(Error::bad(format!(
                "read {CHOICE}: expected \"monotonic\" or an empty file, found {word:?}"
            ))),
        }
    }

    /// Pick the best clock of this machine; takes 10 to 100 ms if there is a TSC to calibrate.
    pub fn best() -> Self {
        if !tsc_is_invariant() || !kernel_trusts_tsc() {
            return Clock::monotonic();
        }
        let start = Moment::now();
        loop {
            let end = Moment::now();
            let (ticks, ns) = (end.ticks.wrapping_sub(start.ticks), end.ns - start.ns);
            if ns < WATCH_NS {
                continue;
            }
            let error = (start.width + end.width) as f64 / 2.0 / ticks as f64;
            if error > GOOD && ns < LONGEST_WATCH_NS {
                continue;
            }
            if ticks == 0 || ticks > ns * 100 {
                return Clock::monotonic();
            }
            return Clock {
                source: Source::Tsc,
                hz: (u128::from(ticks) * 1_000_000_000 / u128::from(ns)) as u64,
                scale: ((u128::from(ns) << 32) / u128::from(ticks)) as u64,
                error,
            };
        }
    }

    pub fn monotonic() -> Self {
        Clock {
            source: Source::Monotonic,
            hz: 1_000_000_000,
            scale: 1 << 32,
            error: 0.0,
        }
    }

    pub fn source(&self) -> &'static str {
        match self.source {
            Source::Tsc => "tsc",
            Source::Monotonic => "monotonic",
        }
    }

    pub fn hz(&self) -> u64 {
        self.hz
    }

    /// Return the maximum relative error of times, as left by the calibration, compared with the
    /// kernel's clock.
    pub fn error(&self) -> f64 {
        self.error
    }

    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        match self.source {
            Source::Tsc => read_tsc(),
            Source::Monotonic => monotonic_ns(),
        }
    }

    /// Return the nanoseconds between two readings; 0 if a move to another core made the second one
    /// the smaller.
    #[inline(always)]
    pub fn ns_between(&self, start: u64, end: u64) -> u64 {
        self.ns_of(end.saturating_sub(start))
    }

    /// Convert ticks to nanoseconds, rounded to the nearest.
    #[inline(always)]
    pub fn ns_of(&self, ticks: u64) -> u64 {
        const HALF: u128 = 1 << 31;
        ((u128::from(ticks) * u128::from(self.scale) + HALF) >> 32) as u64
    }
}

#[inline(always)]
pub fn read_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: we own the structure; the clocks used exist on every kernel that runs this.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[inline(always)]
pub fn monotonic_ns() -> u64 {
    read_ns(libc::CLOCK_MONOTONIC)
}

pub fn realtime_ns() -> u64 {
    read_ns(libc::CLOCK_REALTIME)
}

/// CPU time of this thread.
pub fn thread_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of all threads of this process.
pub fn process_cpu_ns() -> u64 {
    read_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// One moment on both clocks, from the fastest of several tries. `ns` was read somewhere within
/// `width` ticks, with `ticks` in the middle.
struct Moment {
    ticks: u64,
    ns: u64,
    width: u64,
}

impl Moment {
    fn now() -> Self {
        let mut best = Moment {
            ticks: 0,
            ns: 0,
            width: u64::MAX,
        };
        for _ in 0..32 {
            let before = read_tsc();
            let ns = read_ns(libc::CLOCK_MONOTONIC_RAW);
            let width = read_tsc().wrapping_sub(before);
            if width < best.width {
                best = Moment {
                    ticks: before.wrapping_add(width / 2),
                    ns,
                    width,
                };
            }
        }
        best
    }
}

/// Return whether the kernel trusts the TSC: it removes an unsteady one from this list. Without a
/// list, trust the CPU.
fn kernel_trusts_tsc() -> bool {
    fs::read_to_string("/sys/devices/system/clocksource/clocksource0/available_clocksource")
        .map_or(true, |list| list.split_whitespace().any(|s| s == "tsc"))
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn read_tsc() -> u64 {
    // SAFETY: every x86-64 CPU has it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // __cpuid is a safe function since Rust 1.94
fn tsc_is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 CPU has CPUID.
    unsafe { __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0 }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn read_tsc() -> u64 {
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn tsc_is_invariant() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backwards_and_agrees_with_the_kernel() {
        for clock in [Clock::best(), Clock::monotonic()] {
            let kernel_start = read_ns(libc::CLOCK_MONOTONIC_RAW);
            let start = clock.ticks();
            let mut last = start;
            for _ in 0..100_000 {
                let now = clock.ticks();
                assert!(now >= last);
                last = now;
            }
            let mut end = start;
            while clock.ns_between(start, end) < 20_000_000 {
                end = clock.ticks();
            }
            let kernel = read_ns(libc::CLOCK_MONOTONIC_RAW) - kernel_start;
            let own = clock.ns_between(start, end);
            assert!(own >= 20_000_000);
            // The kernel's window encloses ours; one part in a thousand covers the difference in
            // the clocks' rates.
            assert!(own <= kernel + kernel / 1000, "{own} {kernel}");
        }
    }

    #[test]
    fn the_rate_is_as_good_as_it_says_over_a_watch_thirty_times_as_long() {
        let clock = Clock::best();
        let start = Moment::now();
        while read_ns(libc::CLOCK_MONOTONIC_RAW) < start.ns + 30 * WATCH_NS {}
        let end = Moment::now();
        if clock.source == Source::Tsc {
            let (own, kernel) = (clock.ns_between(start.ticks, end.ticks), end.ns - start.ns);
            let unsure = clock.ns_of(start.width + end.width) + 2;
            let off = own.abs_diff(kernel);
            let most = (kernel as f64 * clock.error) as u64 + unsure;
            assert!(off <= most, "{off} ns of {kernel}, at most {most}");
            assert!(clock.error < 1e-4, "{}", clock.error);
        }
    }
}
