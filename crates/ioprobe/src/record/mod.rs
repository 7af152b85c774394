//! `ioprobe record`: record the file operations of a command, or of a running process, as a trace.
//!
//! The kernel's programs write events to a ring buffer; one thread here decodes them while the
//! application runs. Memory does not grow with the length of the recording.

mod calls;
mod decoder;
mod dump;
mod names;

use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::io::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use iotrace::{End, Header, Writer};
use libc::{c_int, pid_t};
use serde::Serialize;

use self::decoder::{numbers_in, Decoder};
use self::names::{NameHash, Names, MOST_WALKED};
use crate::error::{last_errno, Doing, Error, Result};
use crate::isolate::{adopt_orphans, require_privilege};
use crate::process::stragglers;
use crate::sys;
use crate::trace::bpf::event::Event;
use crate::trace::bpf::recorder::{Attached, Recorder};

const USAGE: &str = "usage: ioprobe record --output FILE [--pid P] [--under FOLDER] [--hash-names]
                      [--ring BYTES] [--names N] [--report FD] [-- COMMAND...]
       ioprobe record --dump TRACE

Records the file operations of COMMAND, or of process P until it ends or SIGINT comes.
--ring    size of the ring buffer, a power of two (32 MiB)
--names   names in FOLDER that are looked at before the start
--report  descriptor for the summary, as JSON (standard error)
--dump    print the records of a trace, as JSON";

const RING_BYTES: usize = 32 << 20;
/// Pauses between looks at the ring buffer: while events come, and while none do.
const BUSY_PAUSE: Duration = Duration::from_millis(10);
const IDLE_PAUSE: Duration = Duration::from_millis(40);
/// If we are killed, what is older than this has been written.
const FLUSH_EVERY: Duration = Duration::from_secs(1);

static SIGNALS: AtomicU32 = AtomicU32::new(0);
/// Whether one of them was SIGTERM, which a terminal does not send to the command as well.
static TERMINATED: AtomicBool = AtomicBool::new(false);

struct Options {
    output: PathBuf,
    under: Option<PathBuf>,
    process: Option<pid_t>,
    command: Vec<OsString>,
    hash_names: bool,
    ring_bytes: usize,
    names: usize,
    report: Option<OwnedFd>,
}

/// What the conductor learns.
#[derive(Serialize)]
struct Report {
    operations: u64,
    threads: u32,
    files: u32,
    read_bytes: u64,
    written_bytes: u64,
    lost: u64,
    /// Of those lost: what a trace has no room for.
    beyond: u64,
    elsewhere: u64,
    guessed: u64,
    duration_ns: u64,
    trace_bytes: u64,
    under: String,
    /// All names of the folder were looked at before the start.
    complete: bool,
    /// This kernel shows page faults in mappings, and requests of io_uring.
    faults: bool,
    uring: bool,
    /// The wait status's exit code or signal of the command.
    exit_code: Option<i32>,
    signal: Option<i32>,
}

pub fn main(arguments: Vec<OsString>) -> ExitCode {
    if let [option, path] = &arguments[..] {
        if option == "--dump" {
            let to = std::io::BufWriter::new(std::io::stdout().lock());
            return match dump::dump(Path::new(path), to) {
                Ok(()) => ExitCode::SUCCESS,
                Err(why) => {
                    eprintln!("ioprobe record: {why}");
                    ExitCode::FAILURE
                }
            };
        }
    }
    let options = match parse(arguments) {
        Ok(options) => options,
        Err(Error::BadRequest(why)) => {
            eprintln!("ioprobe record: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
        Err(why) => {
            eprintln!("ioprobe record: {why}");
            return ExitCode::FAILURE;
        }
    };
    let done = record(&options);
    let text = match &done {
        Ok(report) => serde_json::to_string(&serde_json::json!({ "ok": report })),
        Err(why) => serde_json::to_string(&serde_json::json!({ "error": why.report() })),
    };
    let mut text = text.unwrap_or_default();
    text.push('\n');
    let reported = match options.report {
        Some(report) => File::from(report).write_all(text.as_bytes()),
        None => std::io::stderr().write_all(text.as_bytes()),
    };
    match done.is_ok() && reported.is_ok() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Options> {
    let (mut output, mut under, mut process, mut report) = (None, None, None, None);
    let (mut hash_names, mut ring_bytes, mut names) = (false, RING_BYTES, MOST_WALKED);
    let mut command = vec![];
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        let option = word.to_string_lossy().into_owned();
        match option.as_str() {
            "--" => {
                command = words.by_ref().collect();
                break;
            }
            "--hash-names" => {
                hash_names = true;
                continue;
            }
            _ => {}
        }
        let value = words
            .next()
            .ok_or_else(|| Error::bad(format!("{option}: expected an option and its value")))?;
        let number = || {
            let number = value.to_str().and_then(|text| text.parse::<usize>().ok());
            number.ok_or_else(|| Error::bad(format!("{option}: expected a number")))
        };
        match option.as_str() {
            "--output" => output = Some(PathBuf::from(value)),
            "--under" => under = Some(PathBuf::from(value)),
            "--pid" => process = Some(number()? as pid_t),
            "--ring" => ring_bytes = number()?,
            "--names" => names = number()?,
            "--report" => report = Some(number()? as RawFd),
            _ => return Err(Error::bad(format!("unknown option {option}"))),
        }
    }
    if process.is_some() != command.is_empty() {
        return Err(Error::bad("expected either --pid or a command"));
    }
    let report = match report {
        Some(number) => Some(own(number)?),
        None => None,
    };
    Ok(Options {
        output: output.ok_or_else(|| Error::bad("--output is missing"))?,
        under,
        process,
        command,
        hash_names,
        ring_bytes,
        names,
        report,
    })
}

/// Take over a descriptor that was passed on, and let the command not inherit it.
fn own(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: no pointers are involved.
    let result = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    if number < 3 || result == -1 {
        return Err(Error::bad(format!("--report {number}: no such descriptor")));
    }
    // SAFETY: it was passed on for this, and nothing else uses it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn record(options: &Options) -> Result<Report> {
    require_privilege("record file operations")?;
    require_first_namespace()?;
    note_signals();
    // Before the command is started: it ends with us if anything fails.
    let recorder = Recorder::load(&calls::FORMS, options.ring_bytes)?;
    if options.process.is_none() {
        adopt_orphans()?;
    }
    let mut subject = match options.process {
        Some(process) => Subject::running(process)?,
        None => Subject::Command(Command::hold(&options.command)?),
    };
    let process = subject.process();
    let (under, root) = folder(options, process)?;
    let mut names = Names::new(under.as_os_str().as_bytes(), &root);
    let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo"));
    names.walk(&mounts.unwrap_or_default(), options.names);
    let complete = names.complete;
    let header = Header {
        version: iotrace::VERSION,
        recorded_at: utc(SystemTime::now()),
        kernel: kernel()?,
        command: shown_command(options),
        under: match options.hash_names {
            true => String::new(),
            false => under.to_string_lossy().into_owned(),
        },
        names_hashed: options.hash_names,
    };
    let path = &options.output;
    // Names of files are not for everybody.
    let mut owner_only = OpenOptions::new();
    owner_only
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600);
    let file = (owner_only.open(path)).doing(|| format!("create {}", path.display()))?;
    let writer = Writer::new(BufWriter::with_capacity(1 << 18, file), &header)
        .map_err(|why| Error::verify(format!("write {}: {why}", path.display())))?;
    let hash = options.hash_names.then(NameHash::new);
    let mut decoder = Decoder::new(writer, names, hash, recorder.uring);
    let attached = recorder.attach()?;
    subject.begin(&recorder, &mut decoder)?;
    let mut stopped = follow(&recorder, &mut decoder, &mut subject);
    if options.process.is_none() {
        // What the command has left running ends with the recording.
        stopped = stopped.and(stragglers::sweep(false, true).map(drop));
    }
    let left = finish_events(attached, &recorder, &mut decoder, stopped)?;
    let beyond = decoder.counts.beyond + left;
    let lost = recorder.lost()? + beyond;
    let duration_ns = now_ns().saturating_sub(decoder.began_ns());
    let (threads, files, counts) = (decoder.threads(), decoder.files(), decoder.counts);
    let operations = decoder.writer.operations();
    let end = End {
        operations,
        lost,
        elsewhere: counts.elsewhere,
        duration_ns,
    };
    let mut buffer = decoder
        .writer
        .finish(end)
        .map_err(|why| Error::verify(format!("write {}: {why}", path.display())))?;
    buffer
        .flush()
        .doing(|| format!("write {}", path.display()))?;
    let trace_bytes = fs::metadata(path).doing(|| format!("stat {}", path.display()))?;
    let (exit_code, signal) = subject.status();
    Ok(Report {
        operations,
        threads,
        files,
        read_bytes: counts.read_bytes,
        written_bytes: counts.written_bytes,
        lost,
        beyond,
        elsewhere: counts.elsewhere,
        guessed: counts.guessed,
        duration_ns,
        trace_bytes: trace_bytes.len(),
        under: under.to_string_lossy().into_owned(),
        complete,
        faults: recorder.faults,
        uring: recorder.uring.is_some(),
        exit_code,
        signal,
    })
}

/// The kernel's events have the numbers that processes have outside of all containers.
fn require_first_namespace() -> Result<()> {
    const OWN: &str = "/proc/self/ns/pid";
    /// PROC_PID_INIT_INO (include/linux/proc_ns.h)
    const FIRST: u64 = 0xefff_fffc;
    match fs::metadata(OWN).doing(|| format!("stat {OWN}"))?.ino() {
        FIRST => Ok(()),
        _ => Err(Error::unsupported(
            "record file operations: not possible from within a container's PID namespace; record from the host, with --pid",
        )),
    }
}

/// Decode events until the subject has ended, or a signal ends the recording.
fn follow<W: Write>(
    recorder: &Recorder,
    decoder: &mut Decoder<W>,
    subject: &mut Subject,
) -> Result<()> {
    // Who waits for the recording to begin can see it in the file.
    decoder.flush()?;
    let mut flushed = Instant::now();
    loop {
        if flushed.elapsed() > FLUSH_EVERY {
            decoder.flush()?;
            flushed = Instant::now();
        }
        // Asked first: what it did before its end is read below.
        let ended = subject.has_ended()?;
        let taken = drain(recorder, decoder)?;
        let signals = SIGNALS.load(Ordering::SeqCst);
        if ended || signals >= subject.signals_to_stop() {
            return Ok(());
        }
        match taken {
            0 => sleep(IDLE_PAUSE),
            _ if taken < recorder.ring().size() / 8 => sleep(BUSY_PAUSE),
            _ => {}
        }
    }
}

/// Detach the programs and decode what is left. Returns how many events the trace has no room for.
fn finish_events<W: Write>(
    attached: Attached,
    recorder: &Recorder,
    decoder: &mut Decoder<W>,
    stopped: Result<()>,
) -> Result<u64> {
    drop(attached);
    let stopped = stopped.and_then(|()| {
        while drain(recorder, decoder)? > 0 {}
        Ok(())
    });
    match stopped {
        // The format's limit: what was recorded before it is a trace.
        Err(_) if decoder.writer.operations() >= iotrace::MAX_OPERATIONS => {
            let mut left = 0;
            let count = |_: &[u8]| {
                left += 1;
                Ok(())
            };
            recorder.ring().drain(count)?;
            Ok(left.max(1))
        }
        other => other.map(|()| 0),
    }
}

fn drain<W: Write>(recorder: &Recorder, decoder: &mut Decoder<W>) -> Result<usize> {
    recorder.ring().drain(|bytes| match Event::parse(bytes) {
        Some(event) => decoder.event(&event),
        None => Err(Error::verify("read an event: it is cut off")),
    })
}

/// What is recorded.
enum Subject {
    Command(Command),
    Running { process: pid_t, descriptor: OwnedFd },
}

impl Subject {
    fn running(process: pid_t) -> Result<Self> {
        let descriptor = sys::process_descriptor(process)?;
        Ok(Subject::Running {
            process,
            descriptor,
        })
    }

    fn process(&self) -> pid_t {
        match self {
            Subject::Command(command) => command.process,
            Subject::Running { process, .. } => *process,
        }
    }

    /// Let it be recorded from now on.
    fn begin<W: Write>(&mut self, recorder: &Recorder, decoder: &mut Decoder<W>) -> Result<()> {
        let process = self.process() as u32;
        match self {
            Subject::Command(command) => {
                decoder.adopt_process(process);
                recorder.follow(process)?;
                decoder.begin(now_ns(), Some(process));
                command.release()
            }
            Subject::Running { .. } => {
                let family = family(process);
                for process in &family {
                    recorder.follow(*process)?;
                }
                for process in &family {
                    decoder.adopt_process(*process);
                }
                decoder.begin(now_ns(), None);
                Ok(())
            }
        }
    }

    fn has_ended(&mut self) -> Result<bool> {
        match self {
            Subject::Command(command) => command.has_ended(),
            Subject::Running { descriptor, .. } => Ok(sys::is_ready(descriptor.as_fd(), 0)),
        }
    }

    /// A command gets the terminal's first signal itself, and ends; the recording ends with it.
    fn signals_to_stop(&self) -> u32 {
        match self {
            Subject::Command(_) => 2,
            Subject::Running { .. } => 1,
        }
    }

    /// Return the exit code or signal of a command that has ended.
    fn status(&self) -> (Option<i32>, Option<i32>) {
        match self {
            Subject::Command(Command {
                status: Some(status),
                ..
            }) => match libc::WIFSIGNALED(*status) {
                true => (None, Some(libc::WTERMSIG(*status))),
                false => (Some(libc::WEXITSTATUS(*status)), None),
            },
            _ => (None, None),
        }
    }
}

/// A command that waits for its release before it is executed.
struct Command {
    name: String,
    process: pid_t,
    go: Option<OwnedFd>,
    failure: OwnedFd,
    status: Option<c_int>,
}

impl Command {
    fn hold(words: &[OsString]) -> Result<Self> {
        let texts: Vec<CString> = words
            .iter()
            .map(|word| CString::new(word.as_bytes()))
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| Error::bad("the command holds a NUL byte"))?;
        let mut pointers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let (wait, go) = sys::pipe()?;
        let (failure, failed) = sys::pipe()?;
        // SAFETY: the child makes system calls only, and execvp, which is safe as this process has
        // one thread.
        let process = unsafe { libc::fork() };
        match process {
            -1 => Err(Error::last_os("start the command: fork")),
            0 => {
                // SAFETY: as above. Without a byte we have died: so does the child.
                unsafe {
                    libc::close(go.as_raw_fd());
                    let mut byte = 0_u8;
                    if libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1) != 1 {
                        libc::_exit(127);
                    }
                    // Rust ignores it, and what is ignored stays so.
                    libc::signal(libc::SIGPIPE, libc::SIG_DFL);
                    libc::execvp(pointers[0], pointers.as_ptr());
                    let errno = last_errno();
                    libc::write(failed.as_raw_fd(), (&raw const errno).cast(), 4);
                    libc::_exit(127)
                }
            }
            process => Ok(Command {
                name: words[0].to_string_lossy().into_owned(),
                process,
                go: Some(go),
                failure,
                status: None,
            }),
        }
    }

    /// Let it execute; an error if it cannot be.
    fn release(&mut self) -> Result<()> {
        if let Some(go) = self.go.take() {
            sys::write_all(&go, &[1], "the command's pipe")?;
        }
        let mut errno = [0; 4];
        match sys::read_full(&self.failure, &mut errno, "the command's pipe")? {
            0 => Ok(()),
            _ => Err(Error::errno(
                format!("start {}", self.name),
                i32::from_le_bytes(errno),
            )),
        }
    }

    fn has_ended(&mut self) -> Result<bool> {
        if TERMINATED.swap(false, Ordering::SeqCst) {
            // SAFETY: no pointers are involved; it is our child, and not reaped yet.
            unsafe { libc::kill(self.process, libc::SIGTERM) };
        }
        if self.status.is_none() {
            let ended = sys::wait(self.process, libc::WNOHANG);
            let ended = ended.map_err(|errno| Error::errno("wait for the command", errno))?;
            self.status = ended.map(|(_, status)| status);
        }
        Ok(self.status.is_some())
    }
}

/// Return the folder to record, as the process sees it, and that process's root as seen from here.
fn folder(options: &Options, process: pid_t) -> Result<(PathBuf, PathBuf)> {
    let proc = PathBuf::from(format!("/proc/{process}"));
    let same = |name: &str| {
        let of = |who: &Path| fs::read_link(who.join(name)).ok();
        of(&proc) == of(Path::new("/proc/self"))
    };
    let root = match same("root") && same("ns/mnt") {
        true => PathBuf::from("/"),
        false => proc.join("root"),
    };
    let under = match &options.under {
        Some(under) => under.clone(),
        None => fs::read_link(proc.join("cwd"))
            .doing(|| format!("find the current folder of process {process}"))?,
    };
    if root == Path::new("/") {
        let found =
            fs::canonicalize(&under).doing(|| format!("find the folder {}", under.display()))?;
        return match found.is_dir() {
            true => Ok((found, root)),
            false => Err(Error::bad(format!("{}: not a folder", under.display()))),
        };
    }
    let seen = root.join(under.strip_prefix("/").unwrap_or(&under));
    match under.is_absolute() && seen.is_dir() {
        true => Ok((under, root)),
        false => Err(Error::bad(format!(
            "{}: not an absolute path of a folder, as process {process} sees it",
            under.display()
        ))),
    }
}

/// Return a process and its descendants.
fn family(process: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> = numbers_in("/proc")
        .into_iter()
        .filter_map(|number| {
            let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
            let parent = text.rsplit_once(')')?.1.split_whitespace().nth(1)?;
            Some((number as u32, parent.parse().ok()?))
        })
        .collect();
    let mut family = vec![process];
    let mut next = 0;
    while let Some(parent) = family.get(next).copied() {
        let children = parents.iter().filter(|(_, of)| *of == parent);
        family.extend(children.map(|(child, _)| *child));
        next += 1;
    }
    family
}

/// With hashed names, the arguments of the command are not stored: they may be names.
fn shown_command(options: &Options) -> Vec<String> {
    let shown = match options.hash_names {
        true => 1,
        false => options.command.len(),
    };
    let text = |word: &OsString| {
        let mut text = word.to_string_lossy().into_owned();
        if options.hash_names {
            text = text.rsplit('/').next().unwrap_or_default().to_string();
        }
        let end = (0..=text.len().min(1000))
            .rev()
            .find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text
    };
    // A header has a limited size.
    options
        .command
        .iter()
        .take(shown.min(500))
        .map(text)
        .collect()
}

fn kernel() -> Result<String> {
    const RELEASE: &str = "/proc/sys/kernel/osrelease";
    let text = fs::read_to_string(RELEASE).doing(|| format!("read {RELEASE}"))?;
    Ok(text.trim().to_string())
}

/// Count SIGINT and SIGTERM instead of ending. A signal that is ignored (nohup) stays so.
fn note_signals() {
    extern "C" fn note(number: c_int) {
        SIGNALS.fetch_add(1, Ordering::SeqCst);
        if number == libc::SIGTERM {
            TERMINATED.store(true, Ordering::SeqCst);
        }
    }
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only adds to an atomic number; execve resets it for the command.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut before: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(c_int) as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(number, &action, &mut before);
            if before.sa_sigaction == libc::SIG_IGN {
                libc::sigaction(number, &before, std::ptr::null_mut());
            }
        }
    }
}

/// Return the time of the kernel's events: CLOCK_MONOTONIC in nanoseconds.
fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Return a time as RFC 3339 has it, in seconds.
fn utc(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (mut day, second) = (seconds / 86_400, seconds % 86_400);
    let (mut year, mut month) = (1970, 1);
    let leap = |year: u64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let days = [
        31,
        28 + u64::from(leap(year)),
        31,
        30,
        31,
        30,
        31,
        31,
        30,
        31,
        30,
        31,
    ];
    for length in days {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute) = (second / 3600, second / 60 % 60);
    let (day, second) = (day + 1, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other values are of `date -u -d @SECONDS`.
    #[test]
    fn times_are_those_of_the_calendar() {
        let at = |seconds| utc(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_764_140_584), "2025-11-26T07:03:04Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59Z");
    }

    #[test]
    fn a_command_or_a_process_is_required() {
        let parsed = |words: &[&str]| parse(words.iter().map(OsString::from).collect());
        assert!(parsed(&["--output", "a"]).is_err());
        assert!(parsed(&["--output", "a", "--pid", "1", "--", "true"]).is_err());
        assert!(parsed(&["--pid", "1"]).is_err());
        assert!(parsed(&["--output", "a", "--pid", "x"]).is_err());
        let options = parsed(&["--output", "a", "--", "cp", "--output", "b"]).unwrap();
        assert_eq!(options.command, ["cp", "--output", "b"]);
    }
}
