//! The timed part of a replay: a thread for each of the recording, with its calls in its order.
//!
//! Between two operations there are only the waits: for other threads, and for the time at which the
//! next one is due. What an operation gives is compared with the recording. It goes on in any case:
//! programs differ in what they do about an error, and the recording says only what this one did.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use io_uring::{opcode, squeue, types, IoUring};
use iotrace::Call;
use libc::{c_int, c_long, off_t};

use super::brief::Brief;
use super::order::Progress;
use super::plan::{bit, Plan, Step, ThreadPlan, NONE};
use crate::clock::Clock;
use crate::error::{last_errno, Error, Result};
use crate::jobs::gate::Gate;
use crate::jobs::region::Region;
use crate::protocol::{ReplayCalls, Timing};
use crate::trace::arch::native_flags;
use crate::uring;

/// The kernel transfers no more at once (MAX_RW_COUNT of include/linux/fs.h).
const MOST_AT_ONCE: u64 = 0x7fff_f000;
/// Buffers of one call (UIO_MAXIOV).
const MOST_VECTORS: usize = 1024;
const PAGE: usize = 4096;
/// Memory that all threads together read into. A longer call gets the same buffer several times.
const ALL_BUFFERS: usize = 1 << 30;
const LARGEST_BUFFER: usize = 16 << 20;
const SMALLEST_BUFFER: usize = 256 << 10;
/// The last part of a wait is spent looking at the clock, because a sleeping thread wakes up late.
const AWAKE_NS: u64 = 60_000;
/// With more threads than processors, only as long as going to sleep itself takes.
const AWAKE_CROWDED_NS: u64 = 5_000;
const MOST_IN_FLIGHT: u32 = 4096;
const MADV_POPULATE_READ: c_int = 22;
/// Flags of an open that are passed on.
const OPEN_FLAGS: c_int = libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DSYNC
    | libc::O_DIRECT
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_PATH
    | libc::O_TMPFILE;
const RESOLVE_NO_MAGICLINKS: u64 = 2;
const RESOLVE_NO_SYMLINKS: u64 = 4;
const RESOLVE_BENEATH: u64 = 8;
/// A rename elsewhere may have got in the way of finding out whether a path stays in the folder.
const OPEN_ATTEMPTS: usize = 16;
/// Where a symbolic link of a replay leads: nowhere, and not out of the folder.
pub const LINK_TARGET: &CStr = c"iotrial-replay-link";

/// When operations start.
#[derive(Clone, Copy)]
pub struct Pace {
    pub timing: Timing,
    /// Recorded times are divided by it.
    pub speed: f64,
}

/// What all threads of a replay share.
pub struct Replay<'a> {
    pub plan: &'a Plan,
    folder: &'a OwnedFd,
    clock: &'a Clock,
    pace: Pace,
    calls: ReplayCalls,
    /// The descriptor of each handle, -1 while it is not open.
    handles: Vec<AtomicI32>,
    progress: Progress,
    mappings: Mutex<HashMap<u32, Vec<Mapping>>>,
    /// Data to write.
    source: Region,
    source_length: usize,
    /// Where `sendfile` sends to.
    null: OwnedFd,
    crowded: bool,
    gate: Gate,
    /// A thread could not get ready.
    unready: AtomicBool,
    /// The clock reading at which the replay begins.
    begin: AtomicU64,
}

// SAFETY: the source is only read once the threads run, and everything else is made to be shared.
unsafe impl Sync for Replay<'_> {}

#[derive(Clone, Copy)]
struct Mapping {
    start: usize,
    offset: u64,
    length: usize,
}

/// What one thread has measured.
pub struct Ended {
    /// By step, in ticks.
    pub took: Vec<Brief>,
    /// By step, in ticks; only with recorded start times.
    pub late: Vec<Brief>,
    /// By call: operations with another result than recorded.
    pub differing: [u64; Call::ALL.len()],
    /// The first of them, and its result.
    pub first_differing: Option<(u32, i64)>,
    pub end: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
}

impl<'a> Replay<'a> {
    pub fn new(
        plan: &'a Plan,
        folder: &'a OwnedFd,
        clock: &'a Clock,
        (pace, calls): (Pace, ReplayCalls),
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Self> {
        let source_length = buffer_length(plan.writes, LARGEST_BUFFER);
        let mut source = Region::filled(source_length)?;
        fill(&mut source);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let replay = Replay {
            plan,
            folder,
            clock,
            pace,
            calls,
            handles: (0..plan.handles).map(|_| AtomicI32::new(-1)).collect(),
            progress: Progress::of(plan.threads.len()),
            mappings: Mutex::new(HashMap::new()),
            source,
            source_length,
            null: crate::sys::open("/dev/null", libc::O_WRONLY, 0)?,
            crowded: plan.threads.len() > processors,
            gate: Gate::default(),
            unready: AtomicBool::new(false),
            begin: AtomicU64::new(0),
        };
        for before in &plan.open_before {
            let path = &plan.files[before.file as usize].path;
            let access = match before.writes {
                true => libc::O_RDWR,
                false => libc::O_RDONLY,
            };
            // A folder cannot be opened for writing. What cannot be opened differs when it is used.
            let opened = replay.open_at(path, access | libc::O_NONBLOCK);
            replay.handles[before.handle as usize]
                .store(opened.max(-1) as c_int, Ordering::Release);
        }
        Ok(replay)
    }

    /// Run all threads. `start` is called when all are ready; its result is returned with theirs,
    /// and the clock reading at which they began.
    ///
    /// A single thread is this one: in a process with several, the kernel takes longer to look up a
    /// descriptor.
    pub fn run<T>(&self, start: impl FnOnce() -> T) -> Result<(T, u64, Vec<Ended>)> {
        if self.plan.threads.len() == 1 {
            let mut performer = Performer::new(self, 0)?;
            let started = start();
            let begin = self.clock.ticks();
            self.begin.store(begin, Ordering::Release);
            let ended = performer.perform();
            return Ok((started, begin, vec![ended]));
        }
        std::thread::scope(|scope| {
            let mut threads = Vec::with_capacity(self.plan.threads.len());
            let mut refused = None;
            for number in 0..self.plan.threads.len() {
                let builder = std::thread::Builder::new().stack_size(256 << 10);
                let begun = builder.spawn_scoped(scope, move || {
                    let ready = Performer::new(self, number);
                    if ready.is_err() {
                        self.unready.store(true, Ordering::Release);
                    }
                    let go = self.gate.pass();
                    let mut performer = ready?;
                    Ok::<_, Error>(go.then(|| performer.perform()))
                });
                match begun {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(0);
                        refused = Some(Error::errno(
                            format!("start thread {number} of a replay"),
                            errno,
                        ));
                        break;
                    }
                }
            }
            self.gate.wait_for(threads.len());
            let started = start();
            let begin = self.clock.ticks();
            self.begin.store(begin, Ordering::Release);
            // The others would wait for a thread that does not run.
            self.gate
                .open(refused.is_none() && !self.unready.load(Ordering::Acquire));
            let mut ended = Vec::with_capacity(threads.len());
            for thread in threads {
                match thread.join().expect("a replaying thread does not panic") {
                    Ok(Some(one)) => ended.push(one),
                    Ok(None) => {}
                    Err(error) => refused = refused.or(Some(error)),
                }
            }
            match refused {
                Some(error) => Err(error),
                None => Ok((started, begin, ended)),
            }
        })
    }

    /// openat2 below the folder. Returns the descriptor, or a negative error number.
    fn open_at(&self, path: &CStr, flags: c_int) -> i64 {
        let flags = flags & OPEN_FLAGS;
        let creates = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let mode = if creates { 0o644 } else { 0 };
        // `struct open_how` of linux/openat2.h: flags, mode, resolve.
        let how: [u64; 3] = [
            (flags | libc::O_CLOEXEC) as u64,
            mode,
            RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
        ];
        let mut opened = 0;
        for _ in 0..OPEN_ATTEMPTS {
            // SAFETY: the path ends with NUL, and the structure has the stated size.
            opened = unsafe {
                libc::syscall(
                    libc::SYS_openat2,
                    self.folder.as_raw_fd(),
                    path.as_ptr(),
                    how.as_ptr(),
                    size_of_val(&how),
                )
            };
            if opened >= 0 || last_errno() != libc::EAGAIN {
                break;
            }
        }
        result_of(opened)
    }

    fn path(&self, file: u32) -> &CStr {
        &self.plan.files[file as usize].path
    }

    #[inline(always)]
    fn descriptor(&self, handle: u32) -> c_int {
        self.handles[handle as usize].load(Ordering::Acquire)
    }

    fn ticks_of(&self, ns: u64) -> u64 {
        let ticks_per_ns = self.clock.hz() as f64 / 1e9;
        (ns as f64 * ticks_per_ns / self.pace.speed) as u64
    }
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        for handle in &self.handles {
            let descriptor = handle.load(Ordering::Acquire);
            if descriptor >= 0 {
                // SAFETY: it is this replay's own.
                unsafe { libc::close(descriptor) };
            }
        }
        let mappings = self
            .mappings
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        for mapping in mappings.values().flatten() {
            mapping.unmap();
        }
    }
}

impl Mapping {
    fn unmap(&self) -> i64 {
        // SAFETY: it is this replay's own, and no pointer into it is kept.
        result_of(unsafe { libc::munmap(self.start as *mut _, self.length) }.into())
    }
}

/// An operation in flight.
struct Flight {
    step: u32,
    /// When it ended in the recording.
    end_ns: u64,
    from: u64,
}

struct Performer<'a> {
    replay: &'a Replay<'a>,
    /// By how much timers of this thread were late before.
    slack: c_int,
    number: usize,
    own: &'a ThreadPlan,
    buffer: Region,
    buffer_length: usize,
    vectors: Vec<libc::iovec>,
    ring: Option<IoUring>,
    flights: Vec<Flight>,
    /// How many steps have been started, and how many of the first of them are reported as done.
    started: u32,
    done: u32,
    /// The recorded time, and the clock reading, from which the next pause counts.
    since: (u64, u64),
    /// The same of operations that ended earlier than in the recording.
    early: Vec<(u64, u64)>,
    ended: Ended,
}

impl<'a> Performer<'a> {
    /// Get everything ready that takes time.
    fn new(replay: &'a Replay<'a>, number: usize) -> Result<Self> {
        let own = &replay.plan.threads[number];
        let share =
            (ALL_BUFFERS / replay.plan.threads.len()).clamp(SMALLEST_BUFFER, LARGEST_BUFFER);
        let buffer_length = buffer_length(own.reads, share);
        let queued = (own.steps.iter()).any(|step| replay.is_queued(step));
        let ring = match queued {
            true => {
                let entries = own.in_flight.clamp(1, MOST_IN_FLIGHT).next_power_of_two();
                Some(uring::set_up(entries)?.0)
            }
            false => None,
        };
        let blank = |wanted: bool| {
            let mut all = Vec::new();
            if wanted {
                // Not zeros, which would be the kernel's shared zero page and would fault later.
                all.resize(own.steps.len(), Brief::of(1));
            }
            all
        };
        // SAFETY: a wish of this thread for exact timers; no pointers.
        let slack = unsafe {
            let slack = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64);
            slack
        };
        Ok(Performer {
            slack,
            replay,
            number,
            own,
            buffer: Region::filled(buffer_length)?,
            buffer_length,
            vectors: Vec::with_capacity(MOST_VECTORS),
            ring,
            flights: Vec::with_capacity(own.in_flight as usize),
            started: 0,
            done: 0,
            since: (0, 0),
            early: Vec::with_capacity(own.in_flight as usize),
            ended: Ended {
                took: blank(true),
                late: blank(replay.pace.timing == Timing::Open),
                differing: [0; Call::ALL.len()],
                first_differing: None,
                end: 0,
                bytes_read: 0,
                bytes_written: 0,
            },
        })
    }

    fn perform(&mut self) -> Ended {
        let (replay, own, clock) = (self.replay, self.own, self.replay.clock);
        let begin = replay.begin.load(Ordering::Acquire);
        let mut waits = own.waits.iter().peekable();
        self.since = (0, begin);
        for (number, step) in own.steps.iter().enumerate() {
            let number = number as u32;
            self.collect(|flight| flight.end_ns <= step.start_ns);
            while let Some(wait) = waits.next_if(|wait| wait.at == number) {
                let other = usize::from(wait.thread);
                if !replay.progress.is_done(other, wait.count) {
                    self.collect(|_| true);
                    replay.progress.wait(other, wait.count);
                }
                if number == 0 && own.born_ns > 0 {
                    self.since = (own.born_ns, clock.ticks());
                }
            }
            let due = match replay.pace.timing {
                Timing::FlatOut => begin,
                Timing::Open => begin.saturating_add(replay.ticks_of(step.start_ns)),
                Timing::Closed => self.due(step),
            };
            let mut now = clock.ticks();
            if now < due {
                now = self.pause(due);
            }
            if replay.pace.timing == Timing::Open {
                self.ended.late[number as usize] = Brief::of(now.saturating_sub(due));
            }
            if step.is(bit::SEEK) {
                let descriptor = replay.descriptor(step.subject);
                // SAFETY: no pointers.
                unsafe { libc::lseek(descriptor, step.offset as off_t, libc::SEEK_SET) };
            }
            let from = clock.ticks();
            if replay.is_queued(step) && self.submit(step, number, from) {
                self.started = number + 1;
                if !step.is(bit::URING) {
                    self.collect(|flight| flight.step == number);
                }
            } else {
                let result = self.call(step);
                self.end(number, from, clock.ticks(), result);
                self.started = number + 1;
            }
            self.publish();
        }
        self.collect(|_| true);
        Ended {
            took: std::mem::take(&mut self.ended.took),
            late: std::mem::take(&mut self.ended.late),
            ..self.ended
        }
    }

    /// Return when an operation is due if the pause before it is kept: the time since the end of the
    /// thread's last operation that had ended before.
    #[inline(always)]
    fn due(&mut self, step: &Step) -> u64 {
        let start_ns = match step.call {
            Call::Wait => step.offset,
            _ => step.start_ns,
        };
        if !self.early.is_empty() {
            for (end_ns, now) in self.early.iter().filter(|(end_ns, _)| *end_ns <= start_ns) {
                if *end_ns >= self.since.0 {
                    self.since = (*end_ns, *now);
                }
            }
            self.early.retain(|(end_ns, _)| *end_ns > start_ns);
        }
        let (since_ns, since) = self.since;
        since.saturating_add(self.replay.ticks_of(start_ns.saturating_sub(since_ns)))
    }

    /// Say which of the first steps are done: those before the first one in flight.
    #[inline(always)]
    fn publish(&mut self) {
        if !self.own.watched {
            return;
        }
        let flying = self.flights.iter().map(|flight| flight.step);
        let done = flying.fold(self.started, u32::min);
        if done > self.done {
            self.done = done;
            self.replay.progress.publish(self.number, done);
        }
    }

    /// Note how an operation ended.
    #[inline(always)]
    fn end(&mut self, number: u32, from: u64, now: u64, result: i64) {
        let step = &self.own.steps[number as usize];
        self.ended.took[number as usize] = Brief::of(now.saturating_sub(from));
        self.ended.end = now;
        if self.own.in_flight > 0 {
            self.early.push((step.end_ns(), now));
        } else {
            self.since = (step.end_ns(), now);
        }
        if step.is(bit::LEFT_OUT) {
            return;
        }
        let moved = result.max(0) as u64;
        match step.call {
            Call::Read | Call::Send => self.ended.bytes_read += moved,
            Call::Write => self.ended.bytes_written += moved,
            Call::Copy => {
                self.ended.bytes_read += moved;
                self.ended.bytes_written += moved;
            }
            _ => {}
        }
        if !is_as_recorded(step, result) {
            self.ended.differing[step.call as usize] += 1;
            self.ended.first_differing.get_or_insert((number, result));
        }
    }

    /// Wait for a clock reading, collecting what completes meanwhile. Returns the reading after it.
    fn pause(&mut self, due: u64) -> u64 {
        let clock = self.replay.clock;
        let awake_ns = match self.replay.crowded {
            true => AWAKE_CROWDED_NS,
            false => AWAKE_NS,
        };
        loop {
            let now = clock.ticks();
            if now >= due {
                return now;
            }
            let left_ns = clock.ns_between(now, due);
            if !self.flights.is_empty() {
                self.reap(left_ns);
                self.publish();
            } else if left_ns > awake_ns {
                let sleep_ns = match self.replay.crowded {
                    true => left_ns,
                    false => left_ns - awake_ns,
                };
                let time = libc::timespec {
                    tv_sec: (sleep_ns / 1_000_000_000) as i64,
                    tv_nsec: (sleep_ns % 1_000_000_000) as i64,
                };
                // SAFETY: we own the structure.
                unsafe { libc::nanosleep(&time, std::ptr::null_mut()) };
            } else {
                std::hint::spin_loop();
            }
        }
    }

    // io_uring

    /// Start an operation by io_uring. Returns false if it has to be done by a plain call.
    fn submit(&mut self, step: &Step, number: u32, from: u64) -> bool {
        if self.flights.len() >= MOST_IN_FLIGHT as usize {
            self.collect(|_| true);
        }
        let entry = self.entry(step).user_data(number.into());
        let Some(ring) = &mut self.ring else {
            return false;
        };
        // SAFETY: buffers live as long as the ring; the kernel copies the vectors when it takes the
        // submission, before they are used for another one (IORING_FEAT_SUBMIT_STABLE).
        if unsafe { ring.submission().push(&entry) }.is_err() {
            return false;
        }
        while let Err(cause) = ring.submit() {
            match cause.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                errno => {
                    let errno = errno.unwrap_or(libc::EIO);
                    self.end(number, from, self.replay.clock.ticks(), -i64::from(errno));
                    return true;
                }
            }
        }
        self.flights.push(Flight {
            step: number,
            end_ns: step.end_ns(),
            from,
        });
        true
    }

    fn entry(&mut self, step: &Step) -> squeue::Entry {
        let file = types::Fd(self.replay.descriptor(step.subject));
        let write = step.call == Call::Write;
        match step.call {
            Call::Fsync => return opcode::Fsync::new(file).build(),
            Call::Fdatasync => {
                let flags = types::FsyncFlags::DATASYNC;
                return opcode::Fsync::new(file).flags(flags).build();
            }
            _ => {}
        }
        let (memory, room) = self.memory(write);
        let length = self.replay.plan.length(step).min(MOST_AT_ONCE) as usize;
        // Without an offset it continues at the position of the open file description.
        let offset = match step.is(bit::POSITIONAL) {
            true => step.offset,
            false => u64::MAX,
        };
        if step.vectors() == 1 && length <= room {
            let length = length as u32;
            return match write {
                true => opcode::Write::new(file, memory, length)
                    .offset(offset)
                    .build(),
                false => opcode::Read::new(file, memory, length)
                    .offset(offset)
                    .build(),
            };
        }
        let count = self.divide(memory, room, length, step.vectors()) as u32;
        let vectors = self.vectors.as_ptr();
        match write {
            true => opcode::Writev::new(file, vectors, count)
                .offset(offset)
                .build(),
            false => opcode::Readv::new(file, vectors, count)
                .offset(offset)
                .build(),
        }
    }

    /// Wait until no operation of this kind is in flight.
    #[inline(always)]
    fn collect(&mut self, wanted: impl Fn(&Flight) -> bool) {
        while self.flights.iter().any(&wanted) {
            self.reap(u64::MAX);
            self.publish();
        }
    }

    /// Wait for at least one completion, or for this long.
    fn reap(&mut self, within_ns: u64) {
        let clock = self.replay.clock;
        let Some(ring) = &mut self.ring else { return };
        let waited = match within_ns {
            u64::MAX => ring.submit_and_wait(1),
            ns => {
                let time = types::Timespec::new()
                    .sec(ns / 1_000_000_000)
                    .nsec((ns % 1_000_000_000) as u32);
                let arguments = types::SubmitArgs::new().timespec(&time);
                ring.submitter().submit_with_args(1, &arguments)
            }
        };
        let now = clock.ticks();
        let _ = waited; // interrupted or out of time: the caller looks again
        loop {
            let ring = self.ring.as_mut();
            let Some(completion) = ring.and_then(|ring| ring.completion().next()) else {
                return;
            };
            let number = completion.user_data();
            let found = (self.flights.iter()).position(|flight| u64::from(flight.step) == number);
            if let Some(place) = found {
                let flight = self.flights.swap_remove(place);
                self.end(flight.step, flight.from, now, completion.result().into());
            }
        }
    }

    // the calls

    /// Do an operation by a system call. Returns its result, or a negative error number.
    fn call(&mut self, step: &Step) -> i64 {
        let replay = self.replay;
        if step.is(bit::LEFT_OUT) {
            return 0;
        }
        let folder = replay.folder.as_raw_fd();
        let by_name = step.is(bit::BY_NAME);
        let offset = step.offset as off_t;
        let length = replay.plan.length(step);
        // SAFETY: paths end with NUL, and buffers are valid for the lengths given. Descriptors are
        // those of this replay, or -1.
        unsafe {
            match step.call {
                Call::Open => self.open(step),
                Call::Close => {
                    let handle = &replay.handles[step.subject as usize];
                    result_of(libc::close(handle.swap(-1, Ordering::AcqRel)).into())
                }
                Call::Read | Call::Write => self.transfer(step),
                Call::Fsync => result_of(libc::fsync(self.of(step)).into()),
                Call::Fdatasync => result_of(libc::fdatasync(self.of(step)).into()),
                Call::SyncFileRange => {
                    let flags = replay.plan.flags(step);
                    let length = length as off_t;
                    result_of(libc::sync_file_range(self.of(step), offset, length, flags).into())
                }
                // Never the whole machine's file systems.
                Call::Sync => result_of(libc::syncfs(folder).into()),
                Call::Truncate if by_name => {
                    let opened = replay.open_at(replay.path(step.subject), libc::O_WRONLY);
                    if opened < 0 {
                        return opened;
                    }
                    let result = result_of(libc::ftruncate(opened as RawFd, offset).into());
                    libc::close(opened as RawFd);
                    result
                }
                Call::Truncate => result_of(libc::ftruncate(self.of(step), offset).into()),
                Call::Rename => {
                    let (from, to) = (replay.path(step.subject), replay.path(step.second));
                    let (from, to) = (from.as_ptr(), to.as_ptr());
                    result_of(libc::renameat(folder, from, folder, to).into())
                }
                Call::Link => {
                    let (from, to) = (replay.path(step.subject), replay.path(step.second));
                    let (from, to) = (from.as_ptr(), to.as_ptr());
                    result_of(libc::linkat(folder, from, folder, to, 0).into())
                }
                Call::Symlink => {
                    let path = replay.path(step.subject).as_ptr();
                    result_of(libc::symlinkat(LINK_TARGET.as_ptr(), folder, path).into())
                }
                Call::Unlink => {
                    let path = replay.path(step.subject).as_ptr();
                    result_of(libc::unlinkat(folder, path, 0).into())
                }
                Call::Rmdir => {
                    let path = replay.path(step.subject).as_ptr();
                    result_of(libc::unlinkat(folder, path, libc::AT_REMOVEDIR).into())
                }
                Call::Mkdir => {
                    let path = replay.path(step.subject).as_ptr();
                    result_of(libc::mkdirat(folder, path, 0o755).into())
                }
                Call::Stat => {
                    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
                    let status = status.as_mut_ptr();
                    if by_name {
                        let path = replay.path(step.subject).as_ptr();
                        let flags = libc::AT_SYMLINK_NOFOLLOW;
                        return result_of(libc::fstatat(folder, path, status, flags).into());
                    }
                    result_of(libc::fstat(self.of(step), status).into())
                }
                Call::ReadDir => {
                    let room = self.buffer_length.min(length as usize);
                    let buffer = self.buffer.at(0);
                    result_of(libc::syscall(
                        libc::SYS_getdents64,
                        self.of(step),
                        buffer,
                        room,
                    ))
                }
                Call::Allocate => {
                    let mode = replay.plan.flags(step) as c_int;
                    let length = length as off_t;
                    result_of(libc::fallocate(self.of(step), mode, offset, length).into())
                }
                Call::Advise => {
                    let advice = replay.plan.flags(step) as c_int;
                    // It returns the error number itself.
                    -i64::from(libc::posix_fadvise(
                        self.of(step),
                        offset,
                        length as off_t,
                        advice,
                    ))
                }
                Call::Send => {
                    let mut at = offset;
                    let at = match step.is(bit::POSITIONAL) {
                        true => &mut at as *mut off_t,
                        false => std::ptr::null_mut(),
                    };
                    let length = length.min(MOST_AT_ONCE) as usize;
                    let null = replay.null.as_raw_fd();
                    result_of(libc::sendfile(null, self.of(step), at, length) as c_long)
                }
                Call::Copy => {
                    let mut from = step.is(bit::POSITIONAL).then_some(offset);
                    let mut to = replay.plan.target(step).map(|at| at as off_t);
                    let pointer = |at: &mut Option<off_t>| {
                        (at.as_mut()).map_or(std::ptr::null_mut(), |at| at as *mut off_t)
                    };
                    let (from, to) = (pointer(&mut from), pointer(&mut to));
                    let target = replay.descriptor(step.second);
                    let length = length.min(MOST_AT_ONCE) as usize;
                    let source = self.of(step);
                    result_of(libc::copy_file_range(source, from, target, to, length, 0) as c_long)
                }
                Call::Map => self.map(step),
                Call::Fault => self.fault(step),
                Call::Unmap => self.unmap(step),
                Call::Wait | Call::Start | Call::Exit => 0,
            }
        }
    }

    fn of(&self, step: &Step) -> c_int {
        self.replay.descriptor(step.subject)
    }

    fn open(&mut self, step: &Step) -> i64 {
        let replay = self.replay;
        let flags = native_flags(replay.plan.flags(step)) as c_int;
        let opened = replay.open_at(replay.path(step.subject), flags);
        if opened < 0 {
            return opened;
        }
        let mut unused = opened as c_int;
        if step.second != NONE {
            let handle = &replay.handles[step.second as usize];
            unused = handle.swap(unused, Ordering::AcqRel);
        }
        if unused >= 0 {
            // SAFETY: nothing else refers to it.
            unsafe { libc::close(unused) };
        }
        0
    }

    #[inline(always)]
    fn transfer(&mut self, step: &Step) -> i64 {
        let write = step.call == Call::Write;
        let descriptor = self.of(step);
        let length = self.replay.plan.length(step).min(MOST_AT_ONCE) as usize;
        let (memory, room) = self.memory(write);
        let (positional, at) = (step.is(bit::POSITIONAL), step.offset as off_t);
        // SAFETY: the memory is valid for `room` bytes, and each vector lies within it.
        let moved = unsafe {
            if step.vectors() == 1 && length <= room {
                match (write, positional) {
                    (false, false) => libc::read(descriptor, memory.cast(), length),
                    (false, true) => libc::pread(descriptor, memory.cast(), length, at),
                    (true, false) => libc::write(descriptor, memory.cast(), length),
                    (true, true) => libc::pwrite(descriptor, memory.cast(), length, at),
                }
            } else {
                let count = self.divide(memory, room, length, step.vectors()) as c_int;
                let vectors = self.vectors.as_ptr();
                match (write, positional) {
                    (false, false) => libc::readv(descriptor, vectors, count),
                    (false, true) => libc::preadv(descriptor, vectors, count, at),
                    (true, false) => libc::writev(descriptor, vectors, count),
                    (true, true) => libc::pwritev(descriptor, vectors, count, at),
                }
            }
        };
        result_of(moved as c_long)
    }

    #[inline(always)]
    fn memory(&self, write: bool) -> (*mut u8, usize) {
        match write {
            true => (self.replay.source.at(0), self.replay.source_length),
            false => (self.buffer.at(0), self.buffer_length),
        }
    }

    /// Divide a transfer into this many vectors of about the same length, aligned for direct I/O.
    /// All use the same memory. Returns their number, which is larger if one would be too long.
    fn divide(&mut self, memory: *mut u8, room: usize, length: usize, count: usize) -> usize {
        let (mut rest, count) = (length, count.min(MOST_VECTORS));
        let piece = match length / count {
            large if large >= PAGE => large / PAGE * PAGE,
            small => small.max(1),
        };
        self.vectors.clear();
        while self.vectors.is_empty() || (rest > 0 && self.vectors.len() < MOST_VECTORS) {
            let is_last = self.vectors.len() + 1 >= count;
            let this = rest.min(if is_last { room } else { piece.min(room) });
            self.vectors.push(libc::iovec {
                iov_base: memory.cast(),
                iov_len: this,
            });
            rest -= this;
        }
        self.vectors.len()
    }

    fn map(&mut self, step: &Step) -> i64 {
        let length = self.replay.plan.length(step) as usize;
        // SAFETY: a new mapping, which is only read by the kernel.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ,
                libc::MAP_SHARED,
                self.of(step),
                step.offset as off_t,
            )
        };
        if start == libc::MAP_FAILED {
            return -i64::from(last_errno());
        }
        let mapping = Mapping {
            start: start as usize,
            offset: step.offset,
            length,
        };
        self.mappings(|all| all.entry(step.second).or_default().push(mapping));
        0
    }

    /// Have the kernel fault in the pages. It returns an error where a program that touched them
    /// would get SIGBUS.
    fn fault(&mut self, step: &Step) -> i64 {
        let holds = |mapping: &&Mapping| {
            step.offset >= mapping.offset && step.offset - mapping.offset < mapping.length as u64
        };
        let found = self.mappings(|all| {
            let of_file = all.get(&step.subject)?;
            of_file.iter().find(holds).copied()
        });
        let Some(mapping) = found else {
            return -i64::from(libc::EFAULT);
        };
        let from = (step.offset - mapping.offset) as usize / PAGE * PAGE;
        let length = self.replay.plan.length(step).max(1) as usize;
        let to = from.saturating_add(length.max(PAGE)).min(mapping.length);
        let start = mapping.start + from;
        // SAFETY: at worst the mapping is gone, and the call fails.
        let done = unsafe { libc::madvise(start as *mut _, to - from, MADV_POPULATE_READ) };
        result_of(done.into())
    }

    fn unmap(&mut self, step: &Step) -> i64 {
        let found = self.mappings(|all| {
            let of_file = all.get_mut(&step.subject)?;
            let same = |mapping: &Mapping| mapping.offset == step.offset;
            let place = of_file.iter().position(same)?;
            Some(of_file.swap_remove(place))
        });
        found.map_or(-i64::from(libc::EINVAL), |mapping| mapping.unmap())
    }

    fn mappings<T>(&self, with: impl FnOnce(&mut HashMap<u32, Vec<Mapping>>) -> T) -> T {
        let all = self.replay.mappings.lock();
        with(&mut all.unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Performer<'_> {
    fn drop(&mut self) {
        // SAFETY: no pointers.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.slack as u64) };
    }
}

impl Replay<'_> {
    /// Return whether an operation goes through io_uring.
    #[inline(always)]
    fn is_queued(&self, step: &Step) -> bool {
        (self.calls == ReplayCalls::IoUring || step.is(bit::URING))
            && matches!(
                step.call,
                Call::Read | Call::Write | Call::Fsync | Call::Fdatasync
            )
            && !step.is(bit::LEFT_OUT)
    }
}

/// Return whether an operation gave what it gave in the recording. Of a transfer the bytes count, of
/// everything else only the error.
fn is_as_recorded(step: &Step, result: i64) -> bool {
    let recorded = i64::from(step.result);
    match step.call {
        Call::Read | Call::Write | Call::Send | Call::Copy => result == recorded,
        _ => (result >= 0 && recorded >= 0) || result == recorded,
    }
}

#[inline(always)]
fn result_of(returned: c_long) -> i64 {
    match returned {
        -1 => -i64::from(last_errno()),
        result => result,
    }
}

fn buffer_length(longest: u64, most: usize) -> usize {
    let wanted = usize::try_from(longest).unwrap_or(most).min(most);
    wanted.next_multiple_of(PAGE).max(PAGE)
}
