//! Measurements just before and after a timed part, in the same order for all jobs, and the fields
//! of the answer that they give.

use serde::Serialize;
use serde_json::Value;

use super::stretch::{Spun, Stretch};
use super::usage::{Usage, UsageScope};
use super::watch::{Devices, Watch};
use crate::clock::{monotonic_ns, Clock};
use crate::error::Result;
use crate::protocol::{value, Common};

/// The first and last clock reading of the work itself.
pub struct Span {
    pub start: u64,
    pub end: u64,
}

impl Span {
    /// The elapsed ticks; 0 if a move to another core made the second reading the smaller one.
    #[inline(always)]
    pub fn ticks(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }
}

/// Readings taken just before the work.
pub struct Stopwatch {
    scope: UsageScope,
    before: Usage,
    started_ns: u64,
}

impl Stopwatch {
    /// Take the readings. The work must follow immediately.
    #[inline(always)]
    pub fn start(scope: UsageScope) -> Self {
        Stopwatch {
            scope,
            before: Usage::of(scope),
            started_ns: monotonic_ns(),
        }
    }

    /// Call this right after the work. Injects the slowdown, in proportion to the whole work or to
    /// the part of its ticks that `part` returns.
    #[inline(always)]
    pub fn stop(
        self,
        span: &Span,
        part: impl FnOnce(u64) -> u64,
        (clock, stretch): (&Clock, &mut Stretch),
        common: &Common,
    ) -> Timed {
        // Read here even without an injected slowdown, so that the clock readings of a slowdown are
        // in no arm's CPU time.
        let cpu_ns = self.scope.cpu_ns() - self.before.cpu_ns;
        let ticks = span.ticks();
        let spun = stretch.after(part(ticks), cpu_ns, common.stretch, common.stretch_clock);
        let usage = Usage::of(self.scope).since(&self.before);
        Timed {
            wall_ns: clock.ns_of(ticks) + spun.wall_ns,
            cpu_ns: cpu_ns + spun.cpu_ns,
            usage,
            spun,
            started_ns: self.started_ns,
        }
    }
}

/// The results of a timed part, the same for every job.
pub struct Timed {
    pub wall_ns: u64,
    pub cpu_ns: u64,
    pub usage: Usage,
    pub spun: Spun,
    pub started_ns: u64,
}

impl Timed {
    /// Return the part of the answer that all jobs share. Syncs `sync_after`, if given.
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
    /// Add the fields of one kind of job.
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
