//! One cell of the matrix: its file, a buffer of one record, and the steps of every test before,
//! during and after its timed part.

use std::ffi::CStr;
use std::os::unix::io::{AsRawFd, IntoRawFd, OwnedFd};

use super::order::Order;
use super::pattern::{Held, Pattern};
use super::stdio::Stream;
use super::subject::Subject;
use super::timed::{Broken, Records};
use super::Done;
use super::{is_stdio, makes_the_file, reads_one_before, starts_cold, writes};
use crate::clock::Clock;
use crate::content::mix;
use crate::error::{last_errno, Error, Result};
use crate::fileset::FileSet;
use crate::jobs::usage::{Usage, UsageScope};
use crate::protocol::{word, MatrixJob, MatrixTest};
use crate::recorder::LatencyRecorder;

/// Alignment of buffers for direct I/O: a logical block, which no device makes larger than a page.
const ALIGNED: usize = 4096;
/// Writer numbers reserved per replicate: thirteen tests, with the preparation as writer 0.
const WRITERS: u32 = 16;

/// The time and CPU usage of one timed part.
struct Span {
    ticks: u64,
    usage: Usage,
}

pub struct Cell<'a> {
    subject: Subject,
    /// One record, with room to align it to a page.
    memory: Vec<u8>,
    held: Held,
    records: u32,
    clock: &'a Clock,
    own: &'a MatrixJob,
}

impl<'a> Cell<'a> {
    pub fn new(set: &FileSet, records: u32, clock: &'a Clock, own: &'a MatrixJob) -> Result<Self> {
        Ok(Cell {
            subject: Subject::new(&set.root(None), set.mode)?,
            memory: vec![0xa5; own.record_size + ALIGNED],
            held: Held::by(Pattern::new(own.content, own.seed, 0)),
            records,
            clock,
            own,
        })
    }

    /// Check the file against what the last tests left, and remove it.
    pub fn finish(&mut self) -> Result<()> {
        self.subject
            .check_content(&self.held, self.records, self.own.record_size)?;
        self.subject.remove()
    }

    fn pattern(&self, writer: u32, replicate: u32) -> Pattern {
        let writer = replicate.wrapping_mul(WRITERS).wrapping_add(writer);
        Pattern::new(self.own.content, self.own.seed, writer)
    }

    /// Write the whole file, for a first test that expects one.
    pub fn prepare(&mut self, replicate: u32) -> Result<()> {
        let pattern = self.pattern(0, replicate);
        let size = self.own.record_size;
        let buffer = aligned(&mut self.memory, size);
        self.subject.prepare(pattern, self.records, buffer)?;
        self.held = Held::by(pattern);
        Ok(())
    }

    /// Restore the state that the first replicate started from.
    pub fn begin_again(&mut self, first: MatrixTest, replicate: u32) -> Result<()> {
        self.finish()?;
        match makes_the_file(first) {
            true => Ok(()),
            false => self.prepare(replicate),
        }
    }

    pub fn perform(&mut self, one: &mut Done, replicate: u32) -> Result<()> {
        let test = one.test;
        let number = test as u32 + 1;
        let pattern = self.pattern(number, replicate);
        if makes_the_file(test) && self.subject.exists() {
            self.subject.remove()?;
        }
        if self.own.cold && starts_cold(test) {
            self.subject.make_cold()?;
        }
        let draw = mix(self.own.seed ^ mix(u64::from(number) << 32 | u64::from(replicate)));
        let order = Order::of(test, self.records, self.own.stride, draw);
        if writes(test) {
            let size = self.own.record_size;
            pattern.fill(aligned(&mut self.memory, size));
        }
        let recorder = one.recorder.as_mut();
        let (span, wrong) = match is_stdio(test) {
            false => self.by_descriptor(test, &order, &pattern, recorder)?,
            true => self.by_stream(test, &order, &pattern, recorder)?,
        };
        one.ticks += span.ticks;
        one.usage.add(&span.usage);
        one.bytes += self.own.file_size;
        match test {
            MatrixTest::RecordRewrite => {
                // The last stamp written is that of record 0: only that record was written.
                self.held.first = pattern;
            }
            _ if writes(test) => self.held = Held::by(pattern),
            _ => {}
        }
        if wrong > 0 {
            return Err(Error::verify(format!(
                "{} {}: of {} records, {wrong} differ from what the earlier tests wrote",
                word(test),
                self.subject.path,
                self.records
            )));
        }
        self.subject.check_size(self.own.file_size)
    }

    /// Run one test with read(2) and write(2). Returns the number of records that were wrong.
    fn by_descriptor(
        &mut self,
        test: MatrixTest,
        order: &Order,
        pattern: &Pattern,
        recorder: Option<&mut LatencyRecorder>,
    ) -> Result<(Span, u64)> {
        let direct = if self.own.direct { libc::O_DIRECT } else { 0 };
        let sync = if self.own.sync { libc::O_SYNC } else { 0 };
        let access = match (makes_the_file(test), writes(test)) {
            (true, _) => libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | sync,
            (false, true) => libc::O_WRONLY | sync,
            (false, false) => libc::O_RDONLY,
        };
        let file = self.subject.open(access | direct)?;
        let (clock, held) = (self.clock, self.held);
        let path = self.subject.path.clone();
        let broken = |what: Broken| say(what, test, &path);
        let size = self.own.record_size;
        let buffer = aligned(&mut self.memory, size);
        if reads_one_before(test) {
            read_one(&file, buffer, &path)?;
        }
        let todo = Records {
            count: self.records,
            order,
            buffer,
            recorder,
        };
        let fd = file.as_raw_fd();
        let mut open = Some(file);
        let before = Usage::of(UsageScope::ThisThread);
        let start = clock.ticks();
        let wrong = if writes(test) {
            todo.write(fd, pattern, clock, start).map(|()| 0)
        } else {
            todo.read(fd, &held, clock, start)
        }
        .map_err(broken)?;
        if writes(test) && self.own.fsync {
            // SAFETY: no pointers are involved.
            done(unsafe { libc::fsync(fd) }, "fsync", &path)?;
        }
        if self.own.close {
            if let Some(file) = open.take() {
                // SAFETY: we own the descriptor, and nothing else uses it any more.
                done(unsafe { libc::close(file.into_raw_fd()) }, "close", &path)?;
            }
        }
        let end = clock.ticks();
        let usage = Usage::of(UsageScope::ThisThread).since(&before);
        if writes(test) && !self.own.fsync {
            match &open {
                Some(file) => self.subject.sync(file)?,
                None => self.subject.sync_by_name()?,
            }
        }
        let ticks = end.saturating_sub(start);
        Ok((Span { ticks, usage }, wrong))
    }

    /// Run one test with the C library's streams. Returns the number of records that were wrong.
    fn by_stream(
        &mut self,
        test: MatrixTest,
        order: &Order,
        pattern: &Pattern,
        recorder: Option<&mut LatencyRecorder>,
    ) -> Result<(Span, u64)> {
        let mode: &[u8] = match (makes_the_file(test), writes(test)) {
            (true, _) => b"wxe\0",
            (false, true) => b"r+e\0",
            (false, false) => b"re\0",
        };
        let mode = CStr::from_bytes_with_nul(mode).expect("it ends with NUL");
        let (clock, held) = (self.clock, self.held);
        let stream = Stream::open(self.subject.c_path(), mode, self.own.record_size)?;
        self.subject.will_be_made();
        let path = self.subject.path.clone();
        let size = self.own.record_size;
        let buffer = aligned(&mut self.memory, size);
        let todo = Records {
            count: self.records,
            order,
            buffer,
            recorder,
        };
        let failed = |what: &str, errno: i32| Error::errno(format!("{what} {path}"), errno);
        let writing = writes(test);
        let mut open = Some(stream);
        let before = Usage::of(UsageScope::ThisThread);
        let start = clock.ticks();
        let mut wrong = 0;
        if let Some(stream) = &open {
            wrong = if writing {
                todo.fwrite(stream, pattern, clock, start).map(|()| 0)
            } else {
                todo.fread(stream, &held, clock, start)
            }
            .map_err(|what| say(what, test, &path))?;
            if writing && self.own.fsync {
                stream.flush().map_err(|errno| failed("fflush", errno))?;
                stream.sync().map_err(|errno| failed("fsync", errno))?;
            }
        }
        if self.own.close {
            if let Some(stream) = open.take() {
                stream.close().map_err(|errno| failed("fclose", errno))?;
            }
        }
        let end = clock.ticks();
        let usage = Usage::of(UsageScope::ThisThread).since(&before);
        if writing && !self.own.fsync {
            match &open {
                Some(stream) => {
                    stream.flush().map_err(|errno| failed("fflush", errno))?;
                    stream.sync().map_err(|errno| failed("fsync", errno))?;
                }
                None => self.subject.sync_by_name()?,
            }
        }
        if let Some(stream) = open.take() {
            stream.close().map_err(|errno| failed("fclose", errno))?;
        }
        let ticks = end.saturating_sub(start);
        Ok((Span { ticks, usage }, wrong))
    }
}

/// Read the first record, untimed: the cost of the first access to a newly opened file is not part
/// of the rate.
fn read_one(file: &OwnedFd, buffer: &mut [u8], path: &str) -> Result<()> {
    let fd = file.as_raw_fd();
    // SAFETY: the buffer is valid for its length.
    unsafe {
        if libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) != buffer.len() as isize {
            return Err(Error::verify(format!(
                "read the first record of {path}: file is shorter than {} bytes",
                buffer.len()
            )));
        }
        if libc::lseek(fd, 0, libc::SEEK_SET) == -1 {
            return Err(Error::last_os(format!("seek in {path}")));
        }
    }
    Ok(())
}

fn done(result: libc::c_int, what: &str, path: &str) -> Result<()> {
    match result {
        -1 => Err(Error::errno(format!("{what} {path}"), last_errno())),
        _ => Ok(()),
    }
}

/// Return the page-aligned part of the memory, as long as one record.
fn aligned(memory: &mut [u8], size: usize) -> &mut [u8] {
    let skip = memory.as_ptr().align_offset(ALIGNED);
    &mut memory[skip..skip + size]
}

fn say(broken: Broken, test: MatrixTest, path: &str) -> Error {
    match broken {
        Broken::Os { record, errno } => {
            Error::errno(format!("{} record {record} of {path}", word(test)), errno)
        }
        Broken::Short { record, bytes } => Error::verify(format!(
            "{} record {record} of {path}: short transfer of {bytes} bytes",
            word(test)
        )),
    }
}
