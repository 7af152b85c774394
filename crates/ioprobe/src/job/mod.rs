//! Jobs: the work that is timed, and what the kernel counted meanwhile.

pub mod command;
pub mod expect;
pub mod files;
pub mod matrix;
pub mod outcome;
pub mod places;
pub mod random;
pub mod stream;
pub mod stretch;
pub mod timed;

use serde_json::{json, Map, Value};

use self::stretch::Spun;
use crate::around::{self, Moment};
use crate::clock::{process_cpu_ns, thread_cpu_ns};
use crate::devices::{Activity, Counters};
use crate::error::{Error, Result};
use crate::identity::{Borrowed, User};
use crate::isolate::Lifeline;
use crate::syscall::open_files;
use crate::target::files::syncfs;

/// What getrusage or wait4 counted; blocks are of 512 bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub faults_minor: i64,
    pub faults_major: i64,
    pub switches_voluntary: i64,
    pub switches_involuntary: i64,
    pub blocks_in: i64,
    pub blocks_out: i64,
    pub user_ns: u64,
    pub sys_ns: u64,
    /// Both; of a thread to the nanosecond, where the kernel guesses their shares from its ticks.
    pub cpu_ns: u64,
}

impl Usage {
    pub fn of_this_thread() -> Self {
        Usage::now(libc::RUSAGE_THREAD, thread_cpu_ns)
    }

    /// With the threads that the kernel starts in this process for io_uring.
    pub fn of_this_process() -> Self {
        Usage::now(libc::RUSAGE_SELF, process_cpu_ns)
    }

    fn now(whose: libc::c_int, cpu_clock: fn() -> u64) -> Self {
        // getrusage tells what a running thread had used at the last tick of the scheduler; its CPU clock brings that up to
        // date. Without, most works of less than 4 ms use no CPU time at all.
        let cpu_ns = cpu_clock();
        // SAFETY: a zeroed rusage is valid; the call fills it and cannot fail with these arguments.
        unsafe {
            let mut usage = std::mem::zeroed();
            libc::getrusage(whose, &mut usage);
            Usage {
                cpu_ns,
                ..Usage::from(&usage)
            }
        }
    }

    /// The counts; times stand beside them in an answer.
    pub fn to_json(self) -> Value {
        json!({
            "faults_minor": self.faults_minor,
            "faults_major": self.faults_major,
            "switches_voluntary": self.switches_voluntary,
            "switches_involuntary": self.switches_involuntary,
            "blocks_in": self.blocks_in,
            "blocks_out": self.blocks_out,
        })
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

    /// With a spin that came after it was read: all of that is time of the user's.
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

/// The kernel's counters around a timed part, and the devices' once more after its file system was written back.
pub struct Watch {
    counters: Counters,
    before: Vec<Activity>,
    after: Vec<Activity>,
    moments: (Moment, Moment),
}

pub type Devices = Map<String, Value>;

impl Watch {
    /// To be called just before the timed part.
    pub fn begin(names: &[String]) -> Result<Self> {
        let counters = Counters::open(names)?;
        let (mut before, after) = (counters.room(), counters.room());
        counters.read(&mut before)?;
        let moment = around::before();
        Ok(Watch {
            counters,
            before,
            after,
            moments: (moment, moment),
        })
    }

    /// To be called just after the timed part, when its last clock was read and before anything else touches a disk.
    pub fn end(&mut self) -> Result<()> {
        self.moments.1 = around::after();
        self.counters.read(&mut self.after)
    }

    /// What happened during the timed part; and up to the end of a sync of `path`.
    pub fn report(&self, sync_after: Option<&str>) -> Result<(Devices, Option<Devices>)> {
        let during = self.counters.between(&self.before, &self.after);
        let synced = match sync_after {
            None => None,
            Some(path) => {
                syncfs(path)?;
                let mut written = self.counters.room();
                self.counters.read(&mut written)?;
                Some(self.counters.between(&self.before, &written))
            }
        };
        Ok((during, synced))
    }

    /// What this process and the whole machine did meanwhile: the answer's `around`.
    pub fn around(&self) -> Value {
        around::between(&self.moments.0, &self.moments.1)
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
        let (devices, devices_after_sync) = watch.report(sync_after)?;
        Ok(json!({
            "wall_ns": self.wall_ns,
            "user_ns": self.usage.user_ns,
            "sys_ns": self.usage.sys_ns,
            "cpu_ns": self.cpu_ns,
            "usage": self.usage.to_json(),
            "devices": devices,
            "devices_after_sync": devices_after_sync,
            "around": watch.around(),
            "stretched_ns": self.spun.own_ns,
            "spun": self.spun.to_json(),
            "injected": self.spun.injected(),
            "started_ns": self.started_ns,
            "verified": true,
        }))
    }
}

/// From here on the work is done as the user who was asked for, until what is returned is dropped.
pub fn act_as(user: Option<User>, lifeline: &Lifeline) -> Result<Option<Borrowed<'_>>> {
    match user {
        None => Ok(None),
        Some(user) => {
            require_root_for_user()?;
            Borrowed::assume(user, lifeline).map(Some)
        }
    }
}

/// A switch of user needs root; said before anything is started.
pub fn require_root_for_user() -> Result<()> {
    // SAFETY: geteuid cannot fail.
    match unsafe { libc::geteuid() } {
        0 => Ok(()),
        uid => Err(Error::unsupported(format!(
            "act as another user: wanted to be root, found uid {uid}"
        ))),
    }
}

/// So many files open at once that the kernel would refuse some in the middle of the work are refused before it.
pub fn require_open_files(files: usize) -> Result<()> {
    const SPARE: u64 = 64;
    let wanted = files as u64 + SPARE;
    match open_files()?.rlim_cur {
        limit if wanted <= limit => Ok(()),
        limit => Err(Error::unsupported(format!(
            "open {files} files at once: wanted a limit of {wanted} open files, found {limit}"
        ))),
    }
}
