//! The readings before and after one timed part, in the order that all jobs have in common, and what is told of them.

use serde_json::{json, Value};

use super::stretch::{Spun, Stretch};
use super::usage::{Usage, Whose};
use super::watch::Watch;
use crate::clock::{monotonic_ns, Clock};
use crate::error::Result;
use crate::wire::Common;

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
    pub fn answer(&self, watch: &Watch, sync_after: Option<&str>) -> Result<Value> {
        let reported = watch.report(sync_after)?;
        let mut answer = json!({
            "wall_ns": self.wall_ns,
            "user_ns": self.usage.user_ns,
            "sys_ns": self.usage.sys_ns,
            "cpu_ns": self.cpu_ns,
            "usage": self.usage.to_json(),
            "devices": reported.during,
            "devices_after_sync": reported.synced,
            "around": watch.around(),
            "stretched_ns": self.spun.own_ns,
            "spun": self.spun.to_json(),
            "injected": self.spun.injected(),
            "started_ns": self.started_ns,
            "verified": true,
        });
        if let Some(in_sync) = reported.in_sync {
            answer["devices_in_sync"] = Value::Object(in_sync);
        }
        if let Some(servers) = watch.servers() {
            answer["servers"] = Value::Object(servers);
        }
        Ok(answer)
    }
}
