//! A trace as an I/O log of fio, version 3, which `fio --read_iolog` replays.
//!
//! Each line is a time in microseconds, a file name and an action. fio knows reads, writes, syncs,
//! and the opening and closing of files; all else is left out. It replays in one thread, in the
//! order in which the operations ended. Files have names without folders: fio (3.33) finds a file
//! of a log only by the name that it was added with, breaks lines at white space, and does not
//! create folders.

use std::collections::HashMap;
use std::io::{Read, Write};

use serde::Serialize;

use crate::error::{Error, Problem};
use crate::{Call, FileKind, FileRecord, Op, Reader, Record, Result};

pub const HEAD: &str = "fio version 3 iolog";
/// Open files that are followed at once. A further one stays open in the log.
const MOST_HANDLES: usize = 1 << 16;
const LONGEST_NAME: usize = 60;

/// What became of the operations.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Written {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub syncs: u64,
    /// Operations that succeeded and that a log of fio cannot express.
    pub left_out: u64,
}

/// A file that must exist before fio replays the log.
#[derive(Debug, PartialEq, Serialize)]
pub struct LogFile {
    pub name: String,
    pub size: u64,
}

struct OneFile {
    name: String,
    size: Option<u64>,
    regular: bool,
    added: bool,
    /// Followed handles that have it open.
    handles: u32,
    open: bool,
}

/// Write a trace as a log of fio. Errors: not a trace, damaged, or the output cannot be written. A
/// trace that was cut off is written up to there.
pub fn write<R: Read, W: Write>(input: R, to: W) -> Result<Written> {
    Ok(converted(input, to)?.1)
}

/// Return the files that must exist before the log is replayed: those that existed when the
/// recording began and that the log opens.
pub fn files<R: Read>(input: R) -> Result<Vec<LogFile>> {
    let (files, _) = converted(input, std::io::sink())?;
    let needed = (files.into_iter()).filter(|file| file.added && file.regular);
    Ok(needed
        .filter_map(|file| {
            let name = file.name;
            file.size.map(|size| LogFile { name, size })
        })
        .collect())
}

fn converted<R: Read, W: Write>(input: R, to: W) -> Result<(Vec<OneFile>, Written)> {
    let (_, reader) = Reader::new(input)?;
    let mut log = Log {
        to,
        files: Vec::new(),
        handles: HashMap::new(),
        last_us: 0,
        written: Written::default(),
    };
    let output = |problem| Error {
        offset: 0,
        problem: Problem::Io(problem),
    };
    writeln!(log.to, "{HEAD}").map_err(output)?;
    for record in reader {
        match record {
            Ok(Record::File(file)) => log.files.push(OneFile::of(&file)),
            Ok(Record::Op(op)) => log.operation(&op).map_err(output)?,
            Ok(Record::Thread(_) | Record::End(_)) => {}
            Err(error) if error.is_cut_off() => break,
            Err(error) => return Err(error),
        }
    }
    log.to.flush().map_err(output)?;
    Ok((log.files, log.written))
}

struct Log<W: Write> {
    to: W,
    files: Vec<OneFile>,
    /// The file of each followed handle.
    handles: HashMap<u32, u32>,
    last_us: u64,
    written: Written,
}

impl<W: Write> Log<W> {
    fn operation(&mut self, op: &Op) -> std::io::Result<()> {
        let by_handle = || self.handles.get(&op.handle?).copied();
        let op = &Op {
            file: op.file.or_else(by_handle),
            ..op.clone()
        };
        let moved = u64::try_from(op.result).unwrap_or(0);
        // fio takes times that go back for no time at all.
        self.last_us = self.last_us.max(op.start_ns / 1000);
        match op.call {
            Call::Open => self.opened(op),
            Call::Close => self.closed(op),
            Call::Read | Call::Send | Call::Fault if moved > 0 => {
                self.data(op, op.file, "read", moved)
            }
            Call::Write if moved > 0 => self.data(op, op.file, "write", moved),
            Call::Copy if moved > 0 => {
                self.data(op, op.file, "read", moved)?;
                let offset = op.target.map_or(op.offset, |target| target.offset);
                let written = Op {
                    offset,
                    ..op.clone()
                };
                self.data(&written, op.other, "write", moved)
            }
            Call::Fsync if op.result == 0 => self.sync(op, "sync"),
            Call::Fdatasync if op.result == 0 => self.sync(op, "datasync"),
            Call::Wait | Call::Start | Call::Exit => Ok(()),
            _ => {
                self.written.left_out += u64::from(op.result >= 0);
                Ok(())
            }
        }
    }

    fn opened(&mut self, op: &Op) -> std::io::Result<()> {
        if let (true, Some(file), Some(handle)) = (op.result >= 0, op.file, op.handle) {
            self.follow(handle, file);
        }
        Ok(())
    }

    fn follow(&mut self, handle: u32, file: u32) {
        if self.handles.len() < MOST_HANDLES && !self.handles.contains_key(&handle) {
            self.handles.insert(handle, file);
            self.files[file as usize].handles += 1;
        }
    }

    fn closed(&mut self, op: &Op) -> std::io::Result<()> {
        let Some(id) = op.handle.and_then(|handle| self.handles.remove(&handle)) else {
            return Ok(());
        };
        let file = &mut self.files[id as usize];
        file.handles -= 1;
        if file.handles == 0 && file.open {
            file.open = false;
            writeln!(self.to, "{} {} close", self.last_us, file.name)?;
        }
        Ok(())
    }

    fn data(
        &mut self,
        op: &Op,
        file: Option<u32>,
        action: &str,
        moved: u64,
    ) -> std::io::Result<()> {
        let Some(file) = file else {
            self.written.left_out += 1;
            return Ok(());
        };
        let (count, bytes) = match action {
            "read" => (&mut self.written.reads, &mut self.written.read_bytes),
            _ => (&mut self.written.writes, &mut self.written.written_bytes),
        };
        *count += 1;
        *bytes = bytes.saturating_add(moved);
        self.line(op, file, action, op.offset, moved)
    }

    fn sync(&mut self, op: &Op, action: &str) -> std::io::Result<()> {
        match op.file {
            Some(file) => {
                self.written.syncs += 1;
                self.line(op, file, action, 0, 0)
            }
            None => {
                self.written.left_out += 1;
                Ok(())
            }
        }
    }

    fn line(
        &mut self,
        op: &Op,
        id: u32,
        action: &str,
        offset: u64,
        length: u64,
    ) -> std::io::Result<()> {
        if let (Some(handle), true) = (op.handle, op.file == Some(id)) {
            self.follow(handle, id);
        }
        let at = self.last_us;
        let file = &mut self.files[id as usize];
        if !file.added {
            file.added = true;
            writeln!(self.to, "{at} {} add", file.name)?;
        }
        if !file.open {
            file.open = true;
            writeln!(self.to, "{at} {} open", file.name)?;
        }
        writeln!(self.to, "{at} {} {action} {offset} {length}", file.name)
    }
}

impl OneFile {
    fn of(file: &FileRecord) -> Self {
        let last = file
            .path
            .rsplit(|byte| *byte == b'/')
            .next()
            .unwrap_or_default();
        let plain = last.iter().take(LONGEST_NAME).map(|byte| match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'.' | b'_' | b'-' => char::from(*byte),
            _ => '_',
        });
        OneFile {
            name: format!("{:06}-{}", file.id, plain.collect::<String>()),
            size: file.size,
            regular: file.kind == FileKind::Regular,
            added: false,
            handles: 0,
            open: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{made, End, Target};

    fn trace(operations: &[Op]) -> Vec<u8> {
        let files = [
            ("a b/c d:e", Some(9000)),
            ("new", None),
            ("unused", Some(1)),
        ];
        made::trace(&files, 1, operations, Some(End::default()))
    }

    fn op(call: Call, file: u32, handle: u32, at_us: u64) -> Op {
        Op {
            file: Some(file),
            handle: Some(handle),
            ..made::op(call, at_us * 1000)
        }
    }

    fn data(
        call: Call,
        file: u32,
        handle: u32,
        at_us: u64,
        (offset, length, result): (u64, u64, i64),
    ) -> Op {
        Op {
            offset,
            length,
            result,
            ..op(call, file, handle, at_us)
        }
    }

    #[test]
    fn a_file_is_open_while_any_of_its_handles_is() {
        let bytes = trace(&[
            op(Call::Open, 0, 0, 1),
            op(Call::Open, 0, 1, 2),
            data(Call::Read, 0, 0, 3, (512, 4096, 100)),
            op(Call::Close, 0, 0, 4),
            data(Call::Read, 0, 1, 5, (612, 4096, 0)),
            data(Call::Write, 1, 2, 6, (0, 7, 7)),
            op(Call::Fsync, 1, 2, 7),
            op(Call::Close, 0, 1, 8),
            op(Call::Unlink, 1, 2, 9),
        ]);
        let mut log = Vec::new();
        let written = write(&bytes[..], &mut log).unwrap();
        let wanted = "fio version 3 iolog
3 000000-c_d_e add
3 000000-c_d_e open
3 000000-c_d_e read 512 100
6 000001-new add
6 000001-new open
6 000001-new write 0 7
7 000001-new sync 0 0
8 000000-c_d_e close
";
        assert_eq!(String::from_utf8(log).unwrap(), wanted);
        let (reads, writes) = (
            (written.reads, written.read_bytes),
            (written.writes, written.written_bytes),
        );
        // The read that found nothing, and the unlink.
        assert_eq!(
            (reads, writes, written.syncs, written.left_out),
            ((1, 100), (1, 7), 1, 2)
        );
    }

    #[test]
    fn a_copy_is_a_read_and_a_write_where_it_went() {
        let bytes = trace(&[Op {
            other: Some(1),
            target: Some(Target {
                offset: 300,
                positional: true,
            }),
            ..data(Call::Copy, 0, 0, 3, (512, 4096, 100))
        }]);
        let mut log = Vec::new();
        write(&bytes[..], &mut log).unwrap();
        let log = String::from_utf8(log).unwrap();
        assert!(log.contains("3 000000-c_d_e read 512 100\n"), "{log}");
        assert!(log.contains("3 000001-new write 300 100\n"), "{log}");
    }

    #[test]
    fn files_that_existed_and_are_used_must_be_there() {
        let bytes = trace(&[
            data(Call::Read, 0, 0, 3, (0, 1, 1)),
            data(Call::Write, 1, 1, 6, (0, 7, 7)),
        ]);
        let wanted = [LogFile {
            name: "000000-c_d_e".to_string(),
            size: 9000,
        }];
        assert_eq!(files(&bytes[..]).unwrap(), wanted);
    }
}
