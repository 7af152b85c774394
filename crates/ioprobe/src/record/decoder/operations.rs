//! What each system call, fault and request of io_uring or libaio is as an operation.

use std::io::Write;

use iotrace::{Call, FileKind, Op, Target};
use libc::c_int;

use super::super::calls;
use super::super::names::{joined, First, Place};
use super::{Decoder, Description, Submitted, MOST_SUBMITTED, O_CLOEXEC};
use crate::error::Result;
use crate::trace::arch::flags_of_trace;
use crate::trace::bpf::event::{Event, Opened};
use crate::trace::bpf::recorder::{aio, uring};

const AT_EMPTY_PATH: u64 = 0x1000;
const AT_SYMLINK_NOFOLLOW: u64 = 0x100;
const AT_REMOVEDIR: u64 = 0x200;
const AT_SYMLINK_FOLLOW: u64 = 0x400;
/// __O_TMPFILE (include/uapi/asm-generic/fcntl.h)
const O_TMPFILE: u64 = 0o20_000_000;
/// The ioctl that sets close-on-exec (include/uapi/asm-generic/ioctls.h).
const FIOCLEX: u64 = 0x5451;
const PAGE: u64 = 4096;

impl<W: Write> Decoder<W> {
    pub(super) fn fault(&mut self, event: &Event) -> Result<()> {
        let [device, inode, page, ..] = event.arguments;
        // Those of programs and libraries are no operations of the application.
        let Some(name) = self.names.of_inode((device as u32, inode)) else {
            return Ok(());
        };
        let op = Op {
            positional: true,
            offset: page * PAGE,
            length: PAGE,
            result: PAGE as i64,
            ..self.op(event, Call::Fault)
        };
        self.put_on(event, name, None, op)
    }

    pub(super) fn uring(&mut self, event: &Event) -> Result<()> {
        const FIXED_FILE: u64 = 1;
        const DATA_ONLY: u64 = 1;
        let Some(words) = self.uring else {
            return Ok(());
        };
        let word = |at: usize, bytes: usize| {
            let mut value = [0; 8];
            if let Some(found) = event.command.get(at..at + bytes) {
                value[..bytes].copy_from_slice(found);
            }
            u64::from_le_bytes(value)
        };
        let [number, flags, ..] = event.arguments;
        if event.number == uring::CLOSE {
            // struct io_close: the file, the descriptor, and the place of a registered file.
            return match (event.result, word(12, 4)) {
                (0, 0) => self.close(event, word(8, 4) as c_int),
                _ => Ok(()),
            };
        }
        let description = match self.by_file.get(&event.file) {
            Some(known) => Some(*known),
            None if flags & FIXED_FILE != 0 => None,
            None => self.description(event, number as c_int),
        };
        let (call, vector) = match event.number {
            uring::READV => (Call::Read, true),
            uring::WRITEV => (Call::Write, true),
            uring::READ | uring::READ_FIXED => (Call::Read, false),
            uring::WRITE | uring::WRITE_FIXED => (Call::Write, false),
            _ => match word(words.sync_flags, 4) & DATA_ONLY {
                0 => (Call::Fsync, false),
                _ => (Call::Fdatasync, false),
            },
        };
        let mut op = Op {
            uring: true,
            ..self.op(event, call)
        };
        if matches!(call, Call::Read | Call::Write) {
            let moved = event.result.max(0) as u64;
            let (position, length) = (word(words.position, 8), word(words.length, 4));
            op.positional = position != u64::MAX;
            op.offset = match description {
                _ if op.positional => position,
                Some(known) => self.moved(known, moved),
                None => 0,
            };
            (op.length, op.vectors) = match vector {
                true => (moved, length.min(u16::MAX.into()) as u16),
                false => (length, 1),
            };
        }
        self.put_handle(event, description, op)
    }

    /// Note the libaio requests that a call submitted, or record those it returned results of.
    pub(super) fn aio(&mut self, event: &Event) -> Result<()> {
        let count = event.result.max(0) as usize;
        let items = event.command.chunks_exact(aio::BYTES).take(count);
        self.counts.beyond += count.saturating_sub(aio::MOST) as u64;
        for item in items {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| item[at + byte]));
            if event.number != calls::IO_SUBMIT {
                // struct io_event: the request's own word, its address, its result.
                if let Some(found) = self.submitted.remove(&(event.process, word(8))) {
                    self.completed(event, found, event.end_ns, Some(word(16) as i64))?;
                }
                continue;
            }
            // struct iocb, behind its address
            let address = (event.process, word(0));
            if let Some(before) = self.submitted.remove(&address) {
                self.completed(event, before, event.start_ns, None)?;
            }
            let (operation, number) = (word(24) as u16, (word(24) >> 32) as c_int);
            let found = Submitted {
                thread: event.thread,
                start_ns: event.start_ns,
                description: self.description(event, number),
                operation,
                length: word(40),
                offset: word(48),
            };
            match self.submitted.len() < MOST_SUBMITTED {
                true => drop(self.submitted.insert(address, found)),
                false => self.beyond()?,
            }
        }
        Ok(())
    }

    /// Record the requests of an ending thread without results from a call: programs may read
    /// these from memory.
    pub(super) fn abandoned(&mut self, event: &Event) -> Result<()> {
        let own = |one: &Submitted| one.thread == event.thread;
        let mut left: Vec<_> = (self.submitted.iter())
            .filter(|(_, one)| own(one))
            .map(|(address, one)| (one.start_ns, *address))
            .collect();
        left.sort_unstable();
        for (_, address) in left {
            if let Some(found) = self.submitted.remove(&address) {
                self.completed(event, found, event.start_ns, None)?;
            }
        }
        Ok(())
    }

    /// Record a request of libaio, like one of io_uring. Without a `result`, it is taken to have
    /// succeeded in full.
    fn completed(
        &mut self,
        event: &Event,
        found: Submitted,
        end_ns: u64,
        result: Option<i64>,
    ) -> Result<()> {
        let (call, vector) = match found.operation {
            0 => (Call::Read, false),
            1 => (Call::Write, false),
            2 => (Call::Fsync, false),
            3 => (Call::Fdatasync, false),
            7 => (Call::Read, true),
            8 => (Call::Write, true),
            _ => return self.beyond(),
        };
        let moves = matches!(call, Call::Read | Call::Write);
        let whole = if moves && !vector { found.length } else { 0 };
        let event = Event {
            thread: found.thread,
            start_ns: found.start_ns,
            end_ns,
            result: result.unwrap_or(whole as i64),
            ..event.clone()
        };
        let mut op = Op {
            uring: true,
            positional: moves,
            ..self.op(&event, call)
        };
        if moves {
            op.offset = found.offset;
            (op.length, op.vectors) = match vector {
                true => (
                    event.result.max(0) as u64,
                    found.length.min(u16::MAX.into()) as u16,
                ),
                false => (found.length, 1),
            };
        }
        self.put_handle(&event, found.description, op)
    }

    pub(super) fn call(&mut self, event: &Event) -> Result<()> {
        use calls::*;
        let a = event.arguments;
        let first = a[0] as c_int;
        match event.number {
            READ | WRITE | PREAD64 | PWRITE64 | READV | WRITEV | PREADV | PWRITEV | PREADV2
            | PWRITEV2 => self.transfer(event),
            OPEN => self.open(event, libc::AT_FDCWD, a[1]),
            CREAT => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                self.open(event, libc::AT_FDCWD, flags as u64)
            }
            OPENAT => self.open(event, first, a[2]),
            OPENAT2 => self.open(event, first, a[3]),
            CLOSE => self.close(event, first),
            CLOSE_RANGE => self.close_range(event),
            DUP | DUP2 | DUP3 | FCNTL => self.duplicate(event),
            IOCTL if event.result == 0 => {
                self.close_on_exec(event, a[1] == FIOCLEX);
                Ok(())
            }
            LSEEK => {
                if let (Some(known), 0..) = (self.description(event, first), event.result) {
                    self.descriptions[known as usize].position = event.result as u64;
                }
                Ok(())
            }
            FSYNC => self.on_descriptor(event, Call::Fsync, [0, 0, 0]),
            FDATASYNC => self.on_descriptor(event, Call::Fdatasync, [0, 0, 0]),
            SYNC_FILE_RANGE => self.on_descriptor(event, Call::SyncFileRange, [a[1], a[2], a[3]]),
            SYNCFS => self.on_descriptor(event, Call::Sync, [0, 0, 0]),
            SYNC => {
                let op = self.op(event, Call::Sync);
                self.put(event.thread, op)
            }
            FTRUNCATE => self.on_descriptor(event, Call::Truncate, [0, a[1], 0]),
            FALLOCATE => self.on_descriptor(event, Call::Allocate, [a[2], a[3], a[1]]),
            FADVISE64 => self.on_descriptor(event, Call::Advise, [a[1], a[2], a[3]]),
            FSTAT => self.on_descriptor(event, Call::Stat, [0, 0, 0]),
            GETDENTS | GETDENTS64 => self.on_descriptor(event, Call::ReadDir, [0, a[2], 0]),
            MMAP => self.map(event),
            SENDFILE | SPLICE | COPY_FILE_RANGE => self.copy(event),
            STAT | ACCESS => self.stat(event, libc::AT_FDCWD, true, false),
            LSTAT => self.stat(event, libc::AT_FDCWD, false, false),
            FACCESSAT => self.stat(event, first, true, false),
            FACCESSAT2 | NEWFSTATAT => self.stat(
                event,
                first,
                a[3] & AT_SYMLINK_NOFOLLOW == 0,
                a[3] & AT_EMPTY_PATH != 0,
            ),
            STATX => self.stat(
                event,
                first,
                a[2] & AT_SYMLINK_NOFOLLOW == 0,
                a[2] & AT_EMPTY_PATH != 0,
            ),
            TRUNCATE => {
                let op = Op {
                    length: a[1],
                    ..self.op(event, Call::Truncate)
                };
                self.on_path(event, libc::AT_FDCWD, true, FileKind::Regular, op)
            }
            MKDIR => self.make_folder(event, libc::AT_FDCWD),
            MKDIRAT => self.make_folder(event, first),
            RMDIR => self.unlink(event, libc::AT_FDCWD, true),
            UNLINK => self.unlink(event, libc::AT_FDCWD, false),
            UNLINKAT => self.unlink(event, first, a[2] & AT_REMOVEDIR != 0),
            RENAME => self.rename(event, [libc::AT_FDCWD; 2], 0),
            RENAMEAT => self.rename(event, [first, a[2] as c_int], 0),
            RENAMEAT2 => self.rename(event, [first, a[2] as c_int], a[4]),
            LINK => self.link(event, [libc::AT_FDCWD; 2], 0),
            LINKAT => self.link(event, [first, a[2] as c_int], a[4]),
            SYMLINK => self.symbolic_link(event, libc::AT_FDCWD),
            SYMLINKAT => self.symbolic_link(event, a[1] as c_int),
            CHDIR | FCHDIR => {
                self.change_folder(event);
                Ok(())
            }
            WAIT4 => self.waited(event, event.result as u32),
            WAITID if a[0] == libc::P_PID as u64 => self.waited(event, a[1] as u32),
            _ => Ok(()),
        }
    }

    fn transfer(&mut self, event: &Event) -> Result<()> {
        use calls::*;
        let a = event.arguments;
        let reads = matches!(event.number, READ | PREAD64 | READV | PREADV | PREADV2);
        let description = self.description(event, a[0] as c_int);
        let moved = event.result.max(0) as u64;
        let positional = match event.number {
            PREAD64 | PWRITE64 | PREADV | PWRITEV => true,
            PREADV2 | PWRITEV2 => a[3] != u64::MAX,
            _ => false,
        };
        let offset = match description {
            _ if positional => a[3],
            None => 0,
            Some(known) if event.file == 0 => self.moved(known, moved),
            Some(known) => {
                // The kernel knows where an append went.
                self.descriptions[known as usize].position = event.position;
                event.position.saturating_sub(moved)
            }
        };
        let (length, vectors) = match event.number {
            READ | WRITE | PREAD64 | PWRITE64 => (a[2], 1),
            _ if a[1] == u64::MAX => (moved, a[2]),
            _ => (a[1], a[2]),
        };
        let op = Op {
            positional,
            vectors: vectors.min(u16::MAX.into()) as u16,
            offset,
            length,
            ..self.op(event, if reads { Call::Read } else { Call::Write })
        };
        self.put_handle(event, description, op)
    }

    /// Return a description's position, and move it on.
    fn moved(&mut self, description: u32, by: u64) -> u64 {
        let position = &mut self.descriptions[description as usize].position;
        let before = *position;
        *position = before.saturating_add(by);
        before
    }

    fn open(&mut self, event: &Event, folder: c_int, flags: u64) -> Result<()> {
        let follow = flags & libc::O_NOFOLLOW as u64 == 0
            && flags & (libc::O_CREAT | libc::O_EXCL) as u64
                != (libc::O_CREAT | libc::O_EXCL) as u64;
        let mut place = self.place(event.thread, folder, event.paths[0], follow);
        let mut op = Op {
            flags: flags_of_trace(flags as u32),
            result: event.result.min(0),
            ..self.op(event, Call::Open)
        };
        if event.result < 0 {
            return match place {
                Some(Place::Inside(path)) => {
                    let name = self.first_use(&path, event, FileKind::Regular);
                    self.put_on(event, name, None, op)
                }
                _ => self.elsewhere(),
            };
        }
        let opened = event.opened.map(|found| Opened {
            created: found.created || flags & O_TMPFILE != 0,
            ..found
        });
        let kind = opened.map_or(libc::S_IFREG, |found| found.mode & libc::S_IFMT);
        let data = matches!(kind, libc::S_IFREG | libc::S_IFDIR);
        if flags & O_TMPFILE != 0 {
            // A file without a name: it gets one here.
            if let Some(Place::Inside(folder)) = &mut place {
                let name = format!(".tmpfile-{}", self.temporary);
                self.temporary += 1;
                *folder = joined(folder, name.as_bytes());
                let unnamed = (O_TMPFILE | libc::O_DIRECTORY as u64) as u32;
                let named = flags as u32 & !unnamed | (libc::O_CREAT | libc::O_EXCL) as u32;
                op.flags = flags_of_trace(named);
            }
        } else if let Some(found) = opened {
            place = self.corrected(place, found);
        }
        let (name, absolute) = match place {
            Some(Place::Inside(path)) if data => {
                let name = self.opened(&path, opened, flags);
                (Some(name), Some(self.names.absolute(&path)))
            }
            Some(Place::Inside(_)) | None => (None, None),
            Some(Place::Outside(path)) => (None, Some(path)),
        };
        let description = self.describe(Description {
            name,
            folder: absolute.filter(|_| kind == libc::S_IFDIR),
            file: event.file,
            position: 0,
            descriptors: 0,
            handle: None,
        });
        let close_on_exec = flags & O_CLOEXEC != 0;
        self.assign(event, event.result as c_int, description, close_on_exec)?;
        self.put_handle(event, Some(description), op)
    }

    /// Prefer what the kernel found to where the text of a path led.
    fn corrected(&self, place: Option<Place>, found: Opened) -> Option<Place> {
        let inode = (found.device, found.inode);
        if let Some(Place::Inside(path)) = &place {
            match self
                .names
                .known(path)
                .and_then(|name| self.names.inode(name))
            {
                Some(known) if known != inode => {}
                // New, or as expected; perhaps a second name of the same file.
                _ => return place,
            }
        }
        match self.names.of_inode(inode) {
            Some(name) => Some(Place::Inside(self.names.get(name).path.to_vec())),
            None => place,
        }
    }

    /// Return the name of an opened file, and learn what the kernel says of it.
    fn opened(&mut self, path: &[u8], found: Option<Opened>, flags: u64) -> u32 {
        let truncated = flags & libc::O_TRUNC as u64 != 0;
        let mut guessed = false;
        let name = match found {
            None => self.names.name(path, || First::missing(FileKind::Regular)),
            Some(found) => {
                let kind = match found.mode & libc::S_IFMT {
                    libc::S_IFDIR => FileKind::Directory,
                    _ => FileKind::Regular,
                };
                self.names.name(path, || {
                    guessed = truncated && !found.created;
                    let file = kind == FileKind::Regular;
                    First {
                        kind,
                        size: (!found.created).then_some(if file { found.size } else { 0 }),
                        stored: if found.created { 0 } else { found.stored },
                    }
                })
            }
        };
        self.counts.guessed += u64::from(guessed);
        if let Some(found) = found {
            self.names.set_inode(name, (found.device, found.inode));
        }
        name
    }

    fn close(&mut self, event: &Event, number: c_int) -> Result<()> {
        let table = self.table(event.thread);
        let known = table.borrow().get(&number).copied();
        let Some(descriptor) = known else {
            return Ok(());
        };
        // A close of another thread that had begun before the number was used again.
        let file = self.descriptions[descriptor.description as usize].file;
        if event.file != 0 && file != 0 && file != event.file {
            return Ok(());
        }
        table.borrow_mut().remove(&number);
        self.released(event, descriptor.description)
    }

    fn close_range(&mut self, event: &Event) -> Result<()> {
        const CLOSE_RANGE_CLOEXEC: u64 = 4;
        let [first, last, flags, ..] = event.arguments;
        if event.result != 0 {
            return Ok(());
        }
        let table = self.table(event.thread);
        let within = |number: &c_int| (first as u32..=last as u32).contains(&(*number as u32));
        let mut numbers: Vec<_> = table.borrow().keys().copied().filter(within).collect();
        numbers.sort_unstable();
        for number in numbers {
            if flags & CLOSE_RANGE_CLOEXEC != 0 {
                if let Some(descriptor) = table.borrow_mut().get_mut(&number) {
                    descriptor.close_on_exec = true;
                }
                continue;
            }
            let removed = table.borrow_mut().remove(&number);
            if let Some(descriptor) = removed {
                self.released(event, descriptor.description)?;
            }
        }
        Ok(())
    }

    fn duplicate(&mut self, event: &Event) -> Result<()> {
        use calls::*;
        let [old, second, third, ..] = event.arguments;
        let old = old as c_int;
        if event.result < 0 {
            return Ok(());
        }
        if (event.number, second as c_int) == (FCNTL, libc::F_SETFD) {
            self.close_on_exec(event, third & libc::FD_CLOEXEC as u64 != 0);
            return Ok(());
        }
        let new = event.result as c_int;
        if new == old {
            return Ok(());
        }
        let close_on_exec = match event.number {
            DUP3 => third & O_CLOEXEC != 0,
            FCNTL => second as c_int == libc::F_DUPFD_CLOEXEC,
            _ => false,
        };
        match self.description(event, old) {
            Some(description) => self.assign(event, new, description, close_on_exec),
            None => Ok(()),
        }
    }

    fn close_on_exec(&mut self, event: &Event, set: bool) {
        let table = self.table(event.thread);
        if let Some(descriptor) = table.borrow_mut().get_mut(&(event.arguments[0] as c_int)) {
            descriptor.close_on_exec = set;
        };
    }

    fn map(&mut self, event: &Event) -> Result<()> {
        let [_, length, protection, _, number, offset] = event.arguments;
        let description = self.description(event, number as c_int);
        let op = Op {
            positional: true,
            offset,
            length,
            flags: protection as u32,
            // It returns an address, or one of the last 4095 numbers.
            result: if (-4095..0).contains(&event.result) {
                event.result
            } else {
                0
            },
            ..self.op(event, Call::Map)
        };
        self.put_handle(event, description, op)
    }

    fn copy(&mut self, event: &Event) -> Result<()> {
        use calls::*;
        let a = event.arguments;
        let moved = event.result.max(0) as u64;
        let (from, from_offset, to, to_offset, length) = match event.number {
            SENDFILE => (a[1], a[2], a[0], u64::MAX, a[3]),
            _ => (a[0], a[1], a[2], a[3], a[4]),
        };
        let from = self.description(event, from as c_int);
        let other = Event {
            file: 0,
            ..event.clone()
        };
        let to = self.description(&other, to as c_int);
        if let (Some(known), u64::MAX) = (from, from_offset) {
            if event.file != 0 {
                self.descriptions[known as usize].position = event.position.saturating_sub(moved);
            }
        }
        let mut place = |description: Option<u32>, offset: u64| match (offset, description) {
            (u64::MAX, Some(known)) => (false, self.moved(known, moved)),
            (u64::MAX, None) => (false, 0),
            // The call has moved it on.
            (offset, _) => (true, offset.saturating_sub(moved)),
        };
        let (from_given, from_offset) = place(from, from_offset);
        let (to_given, to_offset) = place(to, to_offset);
        let name = |known: Option<u32>| known.and_then(|at| self.descriptions[at as usize].name);
        let (source, target) = (name(from), name(to));
        let (handle, call, positional, offset) = match (source, target) {
            (None, Some(_)) => (to, Call::Write, to_given, to_offset),
            (_, Some(_)) => (from, Call::Copy, from_given, from_offset),
            (_, None) => (from, Call::Send, from_given, from_offset),
        };
        let mut op = Op {
            positional,
            offset,
            length,
            ..self.op(event, call)
        };
        if let (Call::Copy, Some(target)) = (call, target) {
            op.other = self.file(target)?;
            op.target = Some(Target {
                offset: to_offset,
                positional: to_given,
            });
        }
        self.put_handle(event, handle, op)
    }

    fn on_descriptor(&mut self, event: &Event, call: Call, values: [u64; 3]) -> Result<()> {
        let [offset, length, flags] = values;
        let description = self.description(event, event.arguments[0] as c_int);
        let op = Op {
            positional: matches!(call, Call::SyncFileRange | Call::Allocate | Call::Advise),
            offset,
            length,
            flags: flags as u32,
            ..self.op(event, call)
        };
        self.put_handle(event, description, op)
    }

    fn stat(&mut self, event: &Event, folder: c_int, follow: bool, empty: bool) -> Result<()> {
        let op = self.op(event, Call::Stat);
        if empty && event.paths[0].is_empty() && folder != libc::AT_FDCWD {
            let description = self.description(event, folder);
            return self.put_handle(event, description, op);
        }
        self.on_path(event, folder, follow, FileKind::Regular, op)
    }

    /// Put an operation on the first path of an event. `kind`: of the file, if it is not known.
    fn on_path(
        &mut self,
        event: &Event,
        folder: c_int,
        follow: bool,
        kind: FileKind,
        op: Op,
    ) -> Result<()> {
        match self.place(event.thread, folder, event.paths[0], follow) {
            Some(Place::Inside(path)) => {
                let name = self.first_use(&path, event, kind);
                self.put_on(event, name, None, op)
            }
            _ => self.elsewhere(),
        }
    }

    fn make_folder(&mut self, event: &Event, folder: c_int) -> Result<()> {
        let op = self.op(event, Call::Mkdir);
        match self.place(event.thread, folder, event.paths[0], false) {
            Some(Place::Inside(path)) => {
                let name = match event.result {
                    0 => self
                        .names
                        .name(&path, || First::missing(FileKind::Directory)),
                    _ => self.first_use(&path, event, FileKind::Directory),
                };
                self.put_on(event, name, None, op)
            }
            _ => self.elsewhere(),
        }
    }

    fn unlink(&mut self, event: &Event, folder: c_int, of_folder: bool) -> Result<()> {
        let (call, kind) = match of_folder {
            true => (Call::Rmdir, FileKind::Directory),
            false => (Call::Unlink, FileKind::Regular),
        };
        let op = self.op(event, call);
        match self.place(event.thread, folder, event.paths[0], false) {
            Some(Place::Inside(path)) => {
                let name = self.first_use(&path, event, kind);
                self.put_on(event, name, None, op)?;
                if event.result == 0 {
                    self.names.removed(name);
                }
                Ok(())
            }
            _ => self.elsewhere(),
        }
    }

    fn rename(&mut self, event: &Event, folders: [c_int; 2], flags: u64) -> Result<()> {
        const RENAME_EXCHANGE: u64 = 2;
        let from = self.place(event.thread, folders[0], event.paths[0], false);
        let to = self.place(event.thread, folders[1], event.paths[1], false);
        let mut op = Op {
            flags: flags as u32,
            ..self.op(event, Call::Rename)
        };
        let from = match from {
            Some(Place::Inside(path)) => Some(self.first_use(&path, event, FileKind::Regular)),
            _ => None,
        };
        let to = match (to, event.result) {
            (Some(Place::Inside(path)), 0) => {
                Some(self.names.name(&path, || First::missing(FileKind::Regular)))
            }
            (Some(Place::Inside(path)), _) => Some(self.first_use(&path, event, FileKind::Regular)),
            _ => None,
        };
        let (Some(old), Some(new)) = (from, to) else {
            // Moved into the folder, or out of it.
            return match from.or(to) {
                None => self.elsewhere(),
                Some(name) => {
                    if event.result == 0 && from.is_some() {
                        self.names.removed(name);
                    }
                    let call = match from.is_some() {
                        true => Call::Unlink,
                        false => Call::Link,
                    };
                    op.call = call;
                    op.flags = 0;
                    match call {
                        Call::Unlink => self.put_on(event, name, None, op),
                        _ => self.elsewhere(),
                    }
                }
            };
        };
        if event.result == 0 && flags & RENAME_EXCHANGE == 0 && old != new {
            // What is in a renamed folder was there under its old name.
            for (before, _) in self.names.renamed(old, new) {
                self.file(before)?;
            }
        }
        let (first, second) = (self.file(old)?, self.file(new)?);
        op.other = second;
        match first.is_some() && second.is_some() {
            true => self.put_on(event, old, None, op),
            false => self.beyond(),
        }
    }

    fn link(&mut self, event: &Event, folders: [c_int; 2], flags: u64) -> Result<()> {
        let follow = flags & AT_SYMLINK_FOLLOW != 0;
        let (old, new) = (event.paths[0], event.paths[1]);
        // The name of a descriptor, for files that were opened without one.
        let descriptor = match old.is_empty() && flags & AT_EMPTY_PATH != 0 {
            true => Some(folders[0]),
            false => (old.strip_prefix(b"/proc/self/fd/"))
                .and_then(|number| std::str::from_utf8(number).ok()?.parse().ok()),
        };
        let from = match descriptor {
            Some(number) => {
                let known = self.description(event, number);
                known.and_then(|at| self.descriptions[at as usize].name)
            }
            None => match self.place(event.thread, folders[0], old, follow) {
                Some(Place::Inside(path)) => Some(self.first_use(&path, event, FileKind::Regular)),
                _ => None,
            },
        };
        let to = self.place(event.thread, folders[1], new, false);
        let (Some(from), Some(Place::Inside(path))) = (from, to) else {
            return self.elsewhere();
        };
        let kind = self.names.get(from).kind;
        let to = match event.result {
            0 => self.names.name(&path, || First::missing(kind)),
            _ => self.first_use(&path, event, kind),
        };
        let op = Op {
            other: self.file(to)?,
            ..self.op(event, Call::Link)
        };
        self.put_on(event, from, None, op)
    }

    fn symbolic_link(&mut self, event: &Event, folder: c_int) -> Result<()> {
        let op = self.op(event, Call::Symlink);
        match self.place(event.thread, folder, event.paths[1], false) {
            Some(Place::Inside(path)) => {
                let name = match event.result {
                    0 => self.names.name(&path, || First::missing(FileKind::Link)),
                    _ => self.first_use(&path, event, FileKind::Link),
                };
                if event.result == 0 {
                    self.names.link(&path, event.paths[0]);
                }
                self.put_on(event, name, None, op)
            }
            _ => self.elsewhere(),
        }
    }

    fn change_folder(&mut self, event: &Event) {
        if event.result != 0 {
            return;
        }
        let folder = match event.number {
            calls::CHDIR => match self.place(event.thread, libc::AT_FDCWD, event.paths[0], true) {
                Some(Place::Inside(path)) => Some(self.names.absolute(&path)),
                Some(Place::Outside(path)) => Some(path),
                None => None,
            },
            _ => {
                let known = self.description(event, event.arguments[0] as c_int);
                known.and_then(|at| self.descriptions[at as usize].folder.clone())
            }
        };
        if let (Some(folder), Some(task)) = (folder, self.tasks.get(&event.thread)) {
            task.folder.replace(folder);
        }
    }

    fn waited(&mut self, event: &Event, process: u32) -> Result<()> {
        if event.result < 0 {
            return Ok(());
        }
        match self.ended.remove(&process) {
            Some(thread) => {
                let op = Op {
                    other: Some(thread),
                    result: 0,
                    ..self.op(event, Call::Wait)
                };
                self.put(event.thread, op)
            }
            None => Ok(()),
        }
    }
}
