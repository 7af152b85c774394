//! The readings before and after one timed part, in the order that all jobs have in common, and what is told of them.

use serde::Serialize;
use serde_json::Value;

use super::stretch::{Spun, Stretch};
use super::usage::{Usage, Whose};
use super::watch::{Devices, Watch};
use crate::clock::{monotonic_ns, Clock};
use crate::error::Result;
use crate::protocol::{value, Common};

/// First and last reading of the clock by the work itself.
pub struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    /// 0 where a move to another core made the second reading the smaller.
    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// What was read just before the work.
pub struct Stopwatch {
    whose: Whose,
    before: Usage,
    started_ns: u64,
}

impl Stopwatch {
    /// The work is to follow at once.
    #[inline(always)]
    pub fn start(whose: Whose) -> Self {
        Stopwatch {
            whose,
            before: Usage::of(whose),
            started_ns: monotonic_ns(),
        }
    }

    /// To be called at once after the work; stretches it, in proportion to the whole or to what `part` makes of its ticks.
    #[inline(always)]
    pub fn stop(
        self,
        span: &Span,
        part: impl FnOnce(u64) -> u64,
        (clock, stretch): (&Clock, &mut Stretch),
        common: &Common,
    ) -> Timed {
        // Here in every arm, so that what reads the clocks of a stretch is in no arm's CPU time.
        let cpu_ns = self.whose.cpu_ns() - self.before.cpu_ns;
        let ticks = span.ticks();
        let spun = stretch.after(part(ticks), cpu_ns, common.stretch, common.stretch_clock);
        let usage = Usage::of(self.whose).since(&self.before);
        Timed {
            wall_ns: clock.ns_of(ticks) + spun.wall_ns,
            cpu_ns: cpu_ns + spun.cpu_ns,
            usage,
            spun,
            started_ns: self.started_ns,
        }
    }
}

/// What every job tells of its timed part.
pub struct Timed {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub usage: Usage,
    pub spun: Spun,
    pub started_ns: u64,
}

impl Timed {
    /// The answer that all jobs have in common; syncs where that was asked for.
    pub fn answer(&self, watch: &Watch, sync_after: Option<&str>) -> Result<Answer> {
        let reported = watch.report(sync_after)?;
        Ok(Answer {
            wall_ns: self.wall_ns,
            user_ns: self.usage.user_ns,
            sys_ns: self.usage.sys_ns,
            cpu_ns: self.cpu_ns,
            usage: self.usage,
            devices: reported.during,
            devices_after_sync: reported.synced,
            devices_in_sync: reported.in_sync,
            around: watch.around(),
            servers: watch.servers(),
            stretched_ns: self.spun.own_ns,
            spun: self.spun,
            injected: self.spun.injected(),
            started_ns: self.started_ns,
            verified: true,
        })
    }
}

#[derive(Serialize)]
pub struct Answer {
    wall_ns: u64,
    user_ns: u64,
    sys_ns: u64,
    cpu_ns: u64,
    usage: Usage,
    devices: Devices,
    devices_after_sync: Option<Devices>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices_in_sync: Option<Devices>,
    around: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    servers: Option<Devices>,
    stretched_ns: u64,
    spun: Spun,
    injected: f64,
    started_ns: u64,
    pub verified: bool,
}

impl Answer {
    /// With what one kind of job answers besides.
    pub fn with(self, own: impl Serialize) -> Result<Value> {
        #[derive(Serialize)]
        struct Whole<T> {
            #[serde(flatten)]
            common: Answer,
            #[serde(flatten)]
            own: T,
        }
        value(Whole { common: self, own })
    }
}
