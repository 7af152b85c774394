//! The timed part of a `files` job: only the system calls of the work itself and one clock read
//! each.
//!
//! Paths, descriptors, buffers, bytes and recorders were prepared before. Paths are absolute, so
//! nothing of the lab is touched or held open before the clock starts. The latency of an operation
//! runs from the end of the previous operation to its own end: the few nanoseconds of recording
//! count towards the next operation, equally for all.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ops::Range;

use libc::{c_int, c_long};

use super::acknowledge::Acknowledger;
use crate::clock::Clock;
use crate::error::last_errno;
use crate::jobs::stopwatch::Span;
use crate::protocol::Operation;
use crate::recorder::LatencyRecorder;

const CLOSED: c_int = -1;

pub struct Work {
    /// The operations, each with the index of its recorder.
    pub operations: Vec<(Operation, usize)>,
    pub phases: Vec<Range<usize>>,
    pub replicates: u32,
    pub paths: Vec<CString>,
    pub folders: Vec<CString>,
    pub descriptors: Vec<c_int>,
    /// For each `write-byte` of the list, the byte for each file.
    pub bytes: Vec<Vec<u8>>,
    /// The data that `write-all` writes to each file.
    pub whole: Vec<Vec<u8>>,
    /// The descriptor that `sendfile` writes to.
    pub sink: c_int,
    pub create_mode: u32,
    /// O_NOFOLLOW unless the names may be links.
    pub itself: c_int,
    pub buffer: Vec<u8>,
    pub names: Vec<u8>,
    pub recorders: Vec<LatencyRecorder>,
    pub tally: Tally,
}

/// Counts kept while working, verified afterwards.
#[derive(Debug, Default)]
pub struct Tally {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub entries: u64,
    pub stat_bytes: u64,
    pub fstat_bytes: u64,
    pub lstat_bytes: u64,
    pub link_bytes: u64,
}

/// The operation that failed: its index in the list, the index of the file or folder, and the
/// errno.
#[derive(Debug)]
pub struct Broken {
    pub operation: usize,
    pub item: usize,
    pub errno: i32,
}

impl Work {
    pub fn perform(&mut self, clock: &Clock) -> Result<Span, Broken> {
        let start = clock.ticks();
        let mut last = start;
        for _ in 0..self.replicates {
            for phase in 0..self.phases.len() {
                let Range { start, end } = self.phases[phase];
                self.list_folders(start..end, clock, &mut last)?;
                for file in 0..self.paths.len() {
                    for operation in start..end {
                        self.timed(operation, file, clock, &mut last)?;
                    }
                }
            }
        }
        Ok(Span { start, end: last })
    }

    /// Do the same, and acknowledge what is durable. The times mean nothing.
    pub fn perform_acknowledging(
        &mut self,
        clock: &Clock,
        acknowledger: &mut Acknowledger,
    ) -> Result<Span, Broken> {
        let start = clock.ticks();
        let mut last = start;
        for _ in 0..self.replicates {
            for phase in 0..self.phases.len() {
                let Range { start, end } = self.phases[phase];
                self.list_folders(start..end, clock, &mut last)?;
                for file in 0..self.paths.len() {
                    for n in start..end {
                        let refused = |errno| Broken {
                            operation: n,
                            item: file,
                            errno,
                        };
                        let operation = self.operations[n].0;
                        acknowledger
                            .before(operation, file, &self.paths[file])
                            .map_err(refused)?;
                        self.timed(n, file, clock, &mut last)?;
                        acknowledger
                            .after(operation, file, &self.paths[file], self.descriptors[file])
                            .map_err(refused)?;
                    }
                }
            }
        }
        Ok(Span { start, end: last })
    }

    #[inline(always)]
    fn timed(
        &mut self,
        n: usize,
        file: usize,
        clock: &Clock,
        last: &mut u64,
    ) -> Result<(), Broken> {
        let (operation, recorder) = self.operations[n];
        if operation == Operation::Getdents {
            return Ok(());
        }
        if self.operate(operation, n, file) < 0 {
            return Err(broken(n, file));
        }
        let now = clock.ticks();
        self.recorders[recorder].record(now.saturating_sub(*last));
        *last = now;
        Ok(())
    }

    /// Perform one operation on one file. The result is negative, with errno set, if it failed.
    #[inline(always)]
    fn operate(&mut self, operation: Operation, n: usize, file: usize) -> c_long {
        let path = self.paths[file].as_ptr();
        let descriptor = self.descriptors[file];
        // SAFETY: paths end with NUL; buffers are valid for the lengths given; descriptors are this job's own.
        unsafe {
            match operation {
                Operation::Open => {
                    self.opened(file, libc::open(path, libc::O_RDONLY | self.itself))
                }
                Operation::OpenWrite => {
                    self.opened(file, libc::open(path, libc::O_WRONLY | self.itself))
                }
                Operation::OpenTruncate => self.opened(
                    file,
                    libc::open(path, libc::O_WRONLY | libc::O_TRUNC | self.itself),
                ),
                Operation::Create => {
                    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
                    self.opened(file, libc::open(path, flags, self.create_mode))
                }
                Operation::Read => self.read(descriptor),
                Operation::ReadToEnd => loop {
                    match self.read(descriptor) {
                        0 => break 0,
                        n if n < 0 => break n,
                        _ => {}
                    }
                },
                Operation::WriteByte => {
                    let byte = &self.bytes[n][file] as *const u8;
                    let written = libc::write(descriptor, byte.cast(), 1);
                    self.tally.bytes_written += (written == 1) as u64;
                    written as c_long
                }
                Operation::Sendfile => loop {
                    let room = self.buffer.len();
                    match libc::sendfile(self.sink, descriptor, std::ptr::null_mut(), room) {
                        0 => break 0,
                        n if n < 0 => break n as c_long,
                        n => self.tally.bytes_read += n as u64,
                    }
                },
                Operation::WriteAll => self.write_all(file, descriptor),
                Operation::Fstat => {
                    let mut status = MaybeUninit::<libc::stat>::uninit();
                    let result = libc::fstat(descriptor, status.as_mut_ptr());
                    if result == 0 {
                        self.tally.fstat_bytes += (*status.as_ptr()).st_size as u64;
                    }
                    result.into()
                }
                Operation::Fsync => libc::fsync(descriptor).into(),
                Operation::Close => {
                    self.descriptors[file] = CLOSED;
                    libc::close(descriptor).into()
                }
                Operation::Stat => {
                    let mut status = MaybeUninit::<libc::stat>::uninit();
                    let result = libc::stat(path, status.as_mut_ptr());
                    if result == 0 {
                        self.tally.stat_bytes += (*status.as_ptr()).st_size as u64;
                    }
                    result.into()
                }
                Operation::Lstat => {
                    let mut status = MaybeUninit::<libc::stat>::uninit();
                    let result = libc::lstat(path, status.as_mut_ptr());
                    if result == 0 {
                        self.tally.lstat_bytes += (*status.as_ptr()).st_size as u64;
                    }
                    result.into()
                }
                Operation::Readlink => {
                    let room = self.names.len();
                    let n = libc::readlink(path, self.names.as_mut_ptr().cast(), room);
                    self.tally.link_bytes += n.max(0) as u64;
                    n as c_long
                }
                Operation::Unlink => libc::unlink(path).into(),
                Operation::Getdents => 0,
            }
        }
    }

    #[inline(always)]
    fn opened(&mut self, file: usize, descriptor: c_int) -> c_long {
        self.descriptors[file] = descriptor;
        descriptor.into()
    }

    #[inline(always)]
    fn read(&mut self, descriptor: c_int) -> c_long {
        let buffer = &mut self.buffer;
        // SAFETY: the buffer is valid for its length.
        let n = unsafe { libc::read(descriptor, buffer.as_mut_ptr().cast(), buffer.len()) };
        self.tally.bytes_read += n.max(0) as u64;
        n as c_long
    }

    #[inline(always)]
    fn write_all(&mut self, file: usize, descriptor: c_int) -> c_long {
        for piece in self.whole[file].chunks(self.buffer.len()) {
            // SAFETY: the piece is valid for its length.
            let n = unsafe { libc::write(descriptor, piece.as_ptr().cast(), piece.len()) };
            if n < 0 {
                return n as c_long;
            }
            self.tally.bytes_written += n as u64;
        }
        0
    }

    /// Run `getdents` once per folder, at the start of its phase wherever it is in the list.
    fn list_folders(
        &mut self,
        part: Range<usize>,
        clock: &Clock,
        last: &mut u64,
    ) -> Result<(), Broken> {
        for n in part {
            let (operation, recorder) = self.operations[n];
            if operation != Operation::Getdents {
                continue;
            }
            for folder in 0..self.folders.len() {
                if self.list(folder) < 0 {
                    return Err(broken(n, folder));
                }
                let now = clock.ticks();
                self.recorders[recorder].record(now.saturating_sub(*last));
                *last = now;
            }
        }
        Ok(())
    }

    fn list(&mut self, folder: usize) -> c_long {
        let path = self.folders[folder].as_ptr();
        // SAFETY: the path ends with NUL; the buffer is valid for its length.
        unsafe {
            let descriptor = libc::open(path, libc::O_RDONLY | libc::O_DIRECTORY);
            if descriptor < 0 {
                return descriptor.into();
            }
            let outcome = loop {
                let (start, room) = (self.names.as_mut_ptr(), self.names.len());
                let n = libc::syscall(libc::SYS_getdents64, descriptor, start, room);
                if n <= 0 {
                    break n;
                }
                self.tally.entries += entries(&self.names[..n as usize]);
            };
            match outcome {
                0 => libc::close(descriptor).into(),
                failed => {
                    let errno = last_errno();
                    libc::close(descriptor);
                    *libc::__errno_location() = errno;
                    failed
                }
            }
        }
    }

    /// Close what the list left open. Not timed.
    pub fn close_all(&mut self) {
        for descriptor in &mut self.descriptors {
            if *descriptor >= 0 {
                // SAFETY: it is this job's own.
                unsafe { libc::close(*descriptor) };
                *descriptor = CLOSED;
            }
        }
    }
}

#[cold]
fn broken(operation: usize, item: usize) -> Broken {
    Broken {
        operation,
        item,
        errno: last_errno(),
    }
}

/// Count the names in the output of getdents64, except `.` and `..` (struct linux_dirent64: length
/// at 16, name at 19).
#[inline]
fn entries(mut records: &[u8]) -> u64 {
    let mut count = 0;
    while records.len() > 19 {
        let length = usize::from(u16::from_ne_bytes([records[16], records[17]]));
        let name = &records[19..];
        let dots = name.starts_with(b".\0") || name.starts_with(b"..\0");
        count += u64::from(!dots);
        records = match records.get(length..) {
            Some(rest) if length > 0 => rest,
            _ => break,
        };
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_no_entries() {
        let record = |name: &[u8]| {
            let mut record = vec![0; 32];
            record[16] = 32;
            record[19..19 + name.len()].copy_from_slice(name);
            record
        };
        let all: Vec<u8> = [&b"."[..], b"..", b"f000001", b".hidden"]
            .iter()
            .flat_map(|name| record(name))
            .collect();
        assert_eq!(entries(&all), 2);
        assert_eq!(entries(&[]), 0);
    }
}
