//! The `command` job: whole processes, timed from just before they start until wait4 reports their
//! end.
//!
//! Running `md5sum` on a small file takes a millisecond, so as much as possible is done before the
//! clock starts: PATH is searched, arguments and environment are laid out, input and output are
//! open, the timeout is set.

use crate::error::Doing;
use std::ffi::CString;
use std::os::unix::io::{AsRawFd, OwnedFd};

use libc::{c_int, pid_t};
use serde::Serialize;
use serde_json::{json, Value};

use super::places::Places;
use super::stopwatch::Timed;
use super::stretch::{Spun, Stretch};
use super::usage::Usage;
use super::watch::Watch;
use super::{act_as, require_root_for_user};
use crate::acknowledge::Listener;
use crate::clock::{monotonic_ns, Clock};
use crate::counters::devices::Counters;
use crate::drain::Drain;
use crate::error::{last_errno, Error, Result};
use crate::fileset::cache::Held;
use crate::fileset::{FileSet, Registry};
use crate::isolate::Lifeline;
use crate::process::limit::Limit;
use crate::process::program::{Environment, Program};
use crate::process::start::{Starter, Surroundings};
use crate::process::stragglers;
use crate::protocol::{CommandJob, Common, Stdout};
use crate::sys::run::{input, rewind};
use crate::sys::tally;
use crate::sys::{self, c_text, memory_file, open, open_at, ResolveFlags};
use crate::trace::bpf::Attached;
use crate::trace::touched::Touched;
use crate::trace::Account;

/// Limit, in bytes, on the standard error that is kept of a failed command.
const STDERR_LIMIT: usize = 4096;
/// Upper limit, in bytes, on what can be kept of a step's output and of each file it writes.
const MOST_OUTPUT: usize = 16 << 20;

/// One step, summed over all its processes.
#[derive(Default)]
struct Done {
    name: String,
    wall_ticks: u64,
    usage: Usage,
    spun: Spun,
    processes: u64,
    printed: Option<Printed>,
}

/// The output of a step's processes, in order. `whole` is false if it was cut off at the limit.
#[derive(Serialize)]
struct Printed {
    stdout: String,
    stderr: String,
    whole: bool,
}

impl Printed {
    fn new() -> Self {
        Printed {
            stdout: String::new(),
            stderr: String::new(),
            whole: true,
        }
    }

    fn take(&mut self, stdout: &OwnedFd, stderr: &OwnedFd, limit: usize) -> Result<()> {
        for (file, text) in [(stdout, &mut self.stdout), (stderr, &mut self.stderr)] {
            let room = limit.saturating_sub(text.len());
            let (more, whole) = beginning_of(file, room)?;
            text.push_str(&more);
            self.whole &= whole;
        }
        Ok(())
    }
}

impl Done {
    fn wall_ns(&self, clock: &Clock) -> u64 {
        clock.ns_of(self.wall_ticks) + self.spun.wall_ns
    }

    fn report(&self, clock: &Clock) -> Report<'_> {
        Report {
            name: &self.name,
            wall_ns: self.wall_ns(clock),
            user_ns: self.usage.with_spin(&self.spun).user_ns,
            sys_ns: self.usage.sys_ns,
            spun: self.spun,
            processes: self.processes,
            printed: self.printed.as_ref(),
        }
    }
}

/// One step, as reported in the answer.
#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    wall_ns: u64,
    user_ns: u64,
    sys_ns: u64,
    spun: Spun,
    processes: u64,
    printed: Option<&'a Printed>,
}

/// A process that did not end as expected.
#[derive(Serialize)]
pub struct Failure {
    pub step: String,
    pub argv0: String,
    pub exit: Option<c_int>,
    pub signal: Option<c_int>,
    pub timed_out: bool,
    pub stderr: String,
}

/// How one process ended.
struct End {
    wall_ticks: u64,
    status: c_int,
    timed_out: bool,
    usage: Usage,
    max_rss_bytes: u64,
}

pub fn run(
    (common, own): (Common, CommandJob),
    registry: &mut Registry,
    starter: &mut Starter,
    (clock, stretch): (&Clock, &mut Stretch),
    (lifeline, isolated): (&Lifeline, bool),
) -> Result<Value> {
    let set: Option<&FileSet> = match &common.set {
        Some(name) => Some(registry.get(name)?),
        None => None,
    };
    if own.keep_output > MOST_OUTPUT {
        return Err(Error::bad(format!(
            "request command: keep_output: expected at most {MOST_OUTPUT} bytes, found {}",
            own.keep_output
        )));
    }
    if own.steps.is_empty() {
        return Err(Error::bad("request command: steps: expected at least one"));
    }
    let places = Places::new(set, &common, own.out.as_deref())?;
    let environment = Environment::new(own.environment.as_ref())?;
    let programs = own
        .steps
        .iter()
        .map(|step| places.programs(step, &environment))
        .collect::<Result<Vec<_>>>()?;
    if common.user.is_some() {
        require_root_for_user()?;
    }
    let limit = Limit::new(own.timeout_s)?;
    let folder = own
        .cwd
        .as_deref()
        .map(|cwd| places.folder(cwd))
        .transpose()?;
    let stdin = input(own.stdin.as_deref())?;
    let stdout = match (own.keep_output, &own.stdout) {
        (1.., _) => memory_file(&CString::default())?,
        (0, Stdout::Pipe | Stdout::Null) => open("/dev/null", libc::O_WRONLY, 0)?,
        (0, Stdout::Inherit) => sys::inherited_stdout()?,
        (0, Stdout::File(path)) => {
            let _borrowed = act_as(common.user, lifeline)?;
            sys::emptied_file(&places.with_folders(path)?, 0o666 & !starter.umask())?
        }
    };
    let piped = own.keep_output == 0 && matches!(own.stdout, Stdout::Pipe);
    let drain = piped.then(Drain::start).transpose()?;
    let stderr = memory_file(&CString::default())?;
    let mut around = Surroundings {
        environment: environment.laid_out()?,
        folder,
        user: common.user,
        groups: Vec::new(),
        traced: !own.touches.is_empty(),
        stdin: stdin.as_raw_fd(),
        stdout: drain.as_ref().map_or(stdout.as_raw_fd(), Drain::stdout),
        stderr: stderr.as_raw_fd(),
    };

    let mut steps: Vec<Done> = own
        .steps
        .iter()
        .map(|step| Done {
            name: step.name.clone(),
            printed: (own.keep_output > 0).then(Printed::new),
            ..Done::default()
        })
        .collect();
    let mut failures = Vec::new();
    let (mut stragglers, mut max_rss_bytes) = (0, 0);
    // Until this function returns. What is mapped counts as our own memory, which programs inherit
    // as their peak: so before the floor.
    let _held = Held::new(&own.hold)?;
    let rss_floor = own_peak_bytes();
    let counter = own.account.then(Attached::begin).transpose()?;
    let mut touched = match own.touches.is_empty() {
        true => None,
        false => Some(Touched::new(
            &own.touches,
            &common.devices,
            own.touches_device.as_deref(),
            own.cwd
                .as_deref()
                .map(|cwd| places.with_folders(cwd))
                .transpose()?,
            own.touches_since_ns,
        )?),
    };
    let mut watch = Watch::begin(Counters::open(&common.devices)?, common.peer.as_deref())?;
    let started_ns = monotonic_ns();
    'work: for _ in 0..common.replicates {
        for (step, programs) in steps.iter_mut().zip(&programs) {
            for program in programs {
                if own.stdin.is_some() {
                    rewind(&stdin)?;
                }
                let listener = match own.acknowledge.as_ref().filter(|marks| !marks.is_empty()) {
                    None => None,
                    Some(marks) => {
                        let listener = Listener::start(marks, &stdout, &own.dialog)?;
                        around.stdout = listener.stdout();
                        around.stdin = listener.stdin().unwrap_or(stdin.as_raw_fd());
                        Some(listener)
                    }
                };
                let end = match &mut touched {
                    None => one_process(program, &around, starter, (clock, limit), isolated)?,
                    Some(seen) => one_traced(program, &around, starter, (clock, limit), seen)?,
                };
                step.wall_ticks += end.wall_ticks;
                step.usage.add(&end.usage);
                step.processes += 1;
                max_rss_bytes = max_rss_bytes.max(end.max_rss_bytes);
                stragglers += stragglers::sweep(isolated, end.timed_out)?;
                listener.map(Listener::finish).transpose()?;
                if !as_expected(&end, own.expect_exit) {
                    failures.push(failure(&step.name, program, &end, &stderr)?);
                    break 'work;
                }
                if let Some(printed) = &mut step.printed {
                    printed.take(&stdout, &stderr, own.keep_output)?;
                    forget(&stdout)?;
                }
                forget(&stderr)?;
            }
        }
    }
    let ended_ns = monotonic_ns();
    let printed_bytes = drain.map(Drain::finish).transpose()?;
    // Spin only after all processes: a process that follows a spin finds colder caches and takes
    // longer.
    for step in &mut steps {
        step.spun = stretch.after(
            step.wall_ticks,
            step.usage.cpu_ns,
            common.stretch,
            common.stretch_clock,
        );
    }
    watch.end()?;
    let account = counter.map(Attached::finish).transpose()?;
    let mut usage = Usage::default();
    let mut spun = Spun::default();
    for step in &steps {
        usage.add(&step.usage);
        spun.add(&step.spun);
    }
    let timed = Timed {
        wall_ns: steps.iter().map(|step| step.wall_ns(clock)).sum(),
        cpu_ns: usage.cpu_ns + spun.cpu_ns,
        usage: usage.with_spin(&spun),
        spun,
        started_ns,
    };
    let mut answer = timed.answer(&watch, common.sync_after.as_deref())?;
    answer.verified = failures.is_empty();
    answer.with(json!({
        "ended_ns": ended_ns,
        "processes": steps.iter().map(|step| step.processes).sum::<u64>(),
        "max_rss_bytes": max_rss_bytes,
        "max_rss_floor_bytes": rss_floor,
        "failures": failures,
        "stragglers": stragglers,
        "printed_bytes": printed_bytes,
        "kept_files": kept_files(own.out.as_deref(), &own.keep_files, own.keep_output)?,
        "out": own.out.as_deref().map(tally::of).transpose()?,
        "account": account.as_ref().map(Account::report),
        "touched": touched.as_ref().map(Touched::report),
        "steps": steps.iter().map(|step| step.report(clock)).collect::<Vec<_>>(),
    }))
}

fn one_process(
    program: &Program,
    around: &Surroundings,
    starter: &mut Starter,
    (clock, limit): (&Clock, Limit),
    isolated: bool,
) -> Result<End> {
    limit.arm();
    let start = clock.ticks();
    let pid = match starter.start(program, around) {
        Ok(pid) => pid,
        Err(error) => {
            limit.disarm();
            return Err(error);
        }
    };
    limit.guard(pid);
    let waited = wait(pid, limit, isolated);
    let end = clock.ticks();
    let expired = limit.disarm();
    let (status, rusage) = waited?;
    Ok(ended((start, end), status, &rusage, expired))
}

/// A value lent to another thread while the lending thread waits for it.
struct Lent<T>(T);
// SAFETY: the lending thread does nothing until the other thread has ended.
unsafe impl<T> Send for Lent<T> {}

impl<T> Lent<T> {
    fn take(self) -> T {
        self.0
    }
}

/// Run one process under ptrace and look at each of its system calls. The tracer must be the thread
/// that started the process, and must wait for nothing else: other code waits for the other
/// children of the probe. Hence a separate thread.
fn one_traced(
    program: &Program,
    around: &Surroundings,
    starter: &mut Starter,
    (clock, limit): (&Clock, Limit),
    touched: &mut Touched,
) -> Result<End> {
    limit.arm();
    let start = clock.ticks();
    let lent = Lent((program, around, starter, touched));
    let followed = std::thread::scope(|scope| {
        let tracer = scope.spawn(move || {
            let (program, around, starter, touched) = lent.take();
            let pid = starter.start(program, around)?;
            limit.guard(pid);
            touched.follow(pid)
        });
        tracer.join().unwrap_or_else(|_| {
            Err(Error::verify(
                "trace a command: the tracer thread failed".to_string(),
            ))
        })
    });
    let end = clock.ticks();
    let expired = limit.disarm();
    let (status, rusage) = followed?;
    Ok(ended((start, end), status, &rusage, expired))
}

fn ended((start, end): (u64, u64), status: c_int, rusage: &libc::rusage, expired: bool) -> End {
    let by_signal = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
    End {
        wall_ticks: end.saturating_sub(start),
        status,
        // If the process ended by itself just as the timer expired, the timer had no effect.
        timed_out: expired && by_signal,
        usage: Usage::from(rusage),
        max_rss_bytes: rusage.ru_maxrss as u64 * 1024,
    }
}

fn wait(pid: pid_t, limit: Limit, isolated: bool) -> Result<(c_int, libc::rusage)> {
    // SAFETY: a zeroed rusage is valid; both structures are ours.
    unsafe {
        let (mut status, mut usage) = (0, std::mem::zeroed());
        loop {
            if libc::wait4(pid, &mut status, 0, &mut usage) == pid {
                return Ok((status, usage));
            }
            match last_errno() {
                libc::EINTR if limit.has_expired() => stragglers::shoot(isolated)?,
                libc::EINTR => {}
                errno => return Err(Error::errno(format!("wait for process {pid}"), errno)),
            }
        }
    }
}

/// `expect_exit`: every exit status means success.
const ANY_EXIT: i32 = -1;

fn as_expected(end: &End, expect_exit: i32) -> bool {
    !end.timed_out
        && libc::WIFEXITED(end.status)
        && (expect_exit == ANY_EXIT || libc::WEXITSTATUS(end.status) == expect_exit)
}

fn failure(step: &str, program: &Program, end: &End, stderr: &OwnedFd) -> Result<Failure> {
    let status = end.status;
    Ok(Failure {
        step: step.to_string(),
        argv0: program.name.clone(),
        exit: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        timed_out: end.timed_out,
        stderr: beginning_of(stderr, STDERR_LIMIT)?.0,
    })
}

/// Return the beginning of a file, and whether that is all of it.
fn beginning_of(file: &OwnedFd, limit: usize) -> Result<(String, bool)> {
    let doing = || "read what a command wrote".to_string();
    let size = rustix::fs::fstat(file).doing(doing)?.st_size as usize;
    let mut text = vec![0; size.min(limit)];
    let mut filled = 0;
    while filled < text.len() {
        match rustix::io::pread(file, &mut text[filled..], filled as u64).doing(doing)? {
            0 => break,
            n => filled += n,
        }
    }
    text.truncate(filled);
    Ok((String::from_utf8_lossy(&text).into_owned(), size <= limit))
}

/// Return the beginning of each named file in the command's output folder, by name; null if there
/// is no such file. The folder's content is untrusted: links are not followed, and only regular
/// files are read.
fn kept_files(out: Option<&str>, names: &[String], limit: usize) -> Result<Value> {
    let mut found = serde_json::Map::new();
    for name in names {
        let folder =
            out.ok_or_else(|| Error::bad("request command: keep_files: needs the folder `out`"))?;
        let folder = open(folder, libc::O_PATH | libc::O_DIRECTORY, 0)?;
        let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = open_at(&folder, &c_text(name)?, flags, inside).ok();
        let plain = file.filter(|file| {
            rustix::fs::fstat(file)
                .is_ok_and(|status| status.st_mode & libc::S_IFMT == libc::S_IFREG)
        });
        let text = plain.map(|file| beginning_of(&file, limit)).transpose()?;
        found.insert(
            name.clone(),
            text.map_or(
                Value::Null,
                |(text, whole)| json!({"text": text, "whole": whole}),
            ),
        );
    }
    Ok(Value::Object(found))
}

/// Empty a file that captures output, so that it holds only the output of the next process.
fn forget(file: &OwnedFd) -> Result<()> {
    if rustix::fs::tell(file) != Ok(0) {
        rewind(file)?;
        let _ = rustix::fs::ftruncate(file, 0);
    }
    Ok(())
}

/// Return the probe's own peak memory, in bytes. exec keeps the peak, so no program started from
/// here can show a lower one.
fn own_peak_bytes() -> u64 {
    // SAFETY: a zeroed rusage is valid; the call fills it and cannot fail with these arguments.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage.ru_maxrss as u64 * 1024
    }
}
