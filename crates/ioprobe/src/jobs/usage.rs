//! CPU time, page faults, context switches and blocks, as counted by getrusage and wait4.

use serde::Serialize;

use super::stretch::Spun;
use crate::clock::{process_cpu_ns, thread_cpu_ns};

/// Whether a job is charged for the usage of its thread or of the whole process.
#[derive(Clone, Copy, Debug)]
pub enum UsageScope {
    ThisThread,
    /// Includes the threads that the kernel starts in it for io_uring.
    ThisProcess,
}

impl UsageScope {
    #[inline(always)]
    pub fn cpu_ns(self) -> u64 {
        match self {
            UsageScope::ThisThread => thread_cpu_ns(),
            UsageScope::ThisProcess => process_cpu_ns(),
        }
    }
}

/// The counts of getrusage or wait4; blocks are of 512 bytes. The times are separate fields of the
/// answer.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Usage {
    pub faults_minor: i64,
    pub faults_major: i64,
    pub switches_voluntary: i64,
    pub switches_involuntary: i64,
    pub blocks_in: i64,
    pub blocks_out: i64,
    #[serde(skip)]
    pub user_ns: u64,
    #[serde(skip)]
    pub sys_ns: u64,
    /// User plus system time. For a thread exact to the nanosecond, where the kernel only estimates
    /// the split between the two from its ticks.
    #[serde(skip)]
    pub cpu_ns: u64,
}

impl Usage {
    /// Return the usage up to now.
    pub fn of(scope: UsageScope) -> Self {
        // getrusage reports what a running thread had used at the scheduler's last tick; reading
        // its CPU clock first brings that up to date. Otherwise most works of less than 4 ms would
        // show no CPU time at all.
        let cpu_ns = scope.cpu_ns();
        let who = match scope {
            UsageScope::ThisThread => libc::RUSAGE_THREAD,
            UsageScope::ThisProcess => libc::RUSAGE_SELF,
        };
        // SAFETY: a zeroed rusage is valid; the call fills it and cannot fail with these arguments.
        unsafe {
            let mut usage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            Usage {
                cpu_ns,
                ..Usage::from(&usage)
            }
        }
    }

    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            faults_minor: self.faults_minor - before.faults_minor,
            faults_major: self.faults_major - before.faults_major,
            switches_voluntary: self.switches_voluntary - before.switches_voluntary,
            switches_involuntary: self.switches_involuntary - before.switches_involuntary,
            blocks_in: self.blocks_in - before.blocks_in,
            blocks_out: self.blocks_out - before.blocks_out,
            user_ns: self.user_ns - before.user_ns,
            sys_ns: self.sys_ns - before.sys_ns,
            cpu_ns: self.cpu_ns - before.cpu_ns,
        }
    }

    /// Add a spin that came after the reading: all of it is user time.
    pub fn with_spin(self, spun: &Spun) -> Usage {
        Usage {
            user_ns: self.user_ns + spun.cpu_ns,
            cpu_ns: self.cpu_ns + spun.cpu_ns,
            ..self
        }
    }

    pub fn add(&mut self, more: &Usage) {
        self.faults_minor += more.faults_minor;
        self.faults_major += more.faults_major;
        self.switches_voluntary += more.switches_voluntary;
        self.switches_involuntary += more.switches_involuntary;
        self.blocks_in += more.blocks_in;
        self.blocks_out += more.blocks_out;
        self.user_ns += more.user_ns;
        self.sys_ns += more.sys_ns;
        self.cpu_ns += more.cpu_ns;
    }
}

impl From<&libc::rusage> for Usage {
    fn from(usage: &libc::rusage) -> Self {
        let ns = |time: libc::timeval| {
            (time.tv_sec as u64) * 1_000_000_000 + (time.tv_usec as u64) * 1_000
        };
        Usage {
            faults_minor: usage.ru_minflt,
            faults_major: usage.ru_majflt,
            switches_voluntary: usage.ru_nvcsw,
            switches_involuntary: usage.ru_nivcsw,
            blocks_in: usage.ru_inblock,
            blocks_out: usage.ru_oublock,
            user_ns: ns(usage.ru_utime),
            sys_ns: ns(usage.ru_stime),
            cpu_ns: ns(usage.ru_utime) + ns(usage.ru_stime),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_kernel_are_seconds_and_microseconds() {
        let time = |tv_sec, tv_usec| libc::timeval { tv_sec, tv_usec };
        // SAFETY: a zeroed rusage is valid.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        (usage.ru_utime, usage.ru_stime) = (time(2, 250_000), time(0, 3));
        let found = Usage::from(&usage);
        assert_eq!((found.user_ns, found.sys_ns), (2_250_000_000, 3_000));
        assert_eq!(found.cpu_ns, 2_250_003_000);
    }
}
