//! Writes a trace.

use std::io::Write;

use crate::error::{Error, Problem, Result};
use crate::record::{bit, tag, target};
use crate::record::{Call, End, FileKind, FileRecord, Header, Op, ThreadRecord};
use crate::state::{self, State};
use crate::{FULL_BLOCK, MAGIC, MAX_BLOCK};

/// Writes records in blocks. Without `finish`, the trace is a cut-off one.
pub struct Writer<W: Write> {
    to: W,
    /// Bytes written before the current block.
    written: u64,
    /// The payload of the current block.
    block: Vec<u8>,
    state: State,
}

impl<W: Write> Writer<W> {
    /// Write what stands before the records.
    pub fn new(mut to: W, header: &Header) -> Result<Self> {
        let at = |problem| Error { offset: 0, problem };
        state::header(header).map_err(at)?;
        to.write_all(&MAGIC)
            .and_then(|()| to.write_all(&header.version.to_le_bytes()))
            .map_err(|error| at(Problem::Io(error)))?;
        let mut block = Vec::with_capacity(FULL_BLOCK);
        string(&mut block, header.recorded_at.as_bytes());
        string(&mut block, header.kernel.as_bytes());
        string(&mut block, header.under.as_bytes());
        block.push(header.names_hashed.into());
        number(&mut block, header.command.len() as u64);
        for part in &header.command {
            string(&mut block, part.as_bytes());
        }
        if block.len() > MAX_BLOCK {
            let (what, most) = ("bytes of the header", MAX_BLOCK as u64);
            return Err(at(Problem::Limit { what, most }));
        }
        let mut writer = Writer {
            to,
            written: (MAGIC.len() + 2) as u64,
            block,
            state: State::default(),
        };
        writer.end_block()?;
        Ok(writer)
    }

    pub fn file(&mut self, file: &FileRecord) -> Result<()> {
        self.state.file(file).map_err(|problem| self.at(problem))?;
        let block = &mut self.block;
        block.push(tag::FILE);
        string(block, &file.path);
        block.push(kind_number(file.kind));
        // 0 is no size.
        match file.size {
            None => number(block, 0),
            Some(size) => {
                block.push(1);
                number(block, size);
            }
        }
        number(block, file.stored);
        number(block, file.extents.into());
        number(block, file.position);
        self.end_full_block()
    }

    pub fn thread(&mut self, thread: &ThreadRecord) -> Result<()> {
        (self.state.thread(thread)).map_err(|problem| self.at(problem))?;
        let block = &mut self.block;
        block.push(tag::THREAD);
        number(block, thread.process.into());
        // 0 is no thread.
        number(block, thread.started_by.map_or(0, |by| u64::from(by) + 1));
        string(block, thread.name.as_bytes());
        self.end_full_block()
    }

    pub fn op(&mut self, op: &Op) -> Result<()> {
        let last = (self.state.threads.get(op.thread as usize)).copied();
        self.state.op(op).map_err(|problem| self.at(problem))?;
        let last = last.unwrap_or_default();
        let mut bits = 0;
        for (set, value) in [
            (op.positional, bit::POSITIONAL),
            (op.uring, bit::URING),
            (op.file.is_some(), bit::FILE),
            (op.other.is_some(), bit::OTHER),
            (op.handle.is_some(), bit::HANDLE),
            (op.vectors != 1, bit::VECTORS),
            (op.offset != last.offset, bit::OFFSET),
            (op.result != op.length as i64, bit::RESULT),
        ] {
            bits |= if set { value } else { 0 };
        }
        let block = &mut self.block;
        block.push(tag::OPERATION | op.call as u8);
        block.push(bits);
        number(block, op.thread.into());
        if let Some(file) = op.file {
            difference(block, file.into(), last.file.into());
        }
        if let Some(other) = op.other {
            number(block, other.into());
        }
        if let Some(handle) = op.handle {
            difference(block, handle.into(), last.handle.into());
        }
        if bits & bit::VECTORS != 0 {
            number(block, op.vectors.into());
        }
        if bits & bit::OFFSET != 0 {
            difference(block, op.offset, last.offset);
        }
        difference(block, op.length, last.length);
        if bits & bit::RESULT != 0 {
            difference(block, op.result as u64, 0);
        }
        match (op.call, op.target) {
            (Call::Copy, None) => number(block, target::UNKNOWN.into()),
            (Call::Copy, Some(to)) => {
                let kind = match to.positional {
                    true => target::POSITIONAL,
                    false => target::AT_POSITION,
                };
                number(block, kind.into());
                number(block, to.offset);
            }
            _ => number(block, op.flags.into()),
        }
        difference(block, op.start_ns, last.end_ns);
        number(block, op.duration_ns);
        self.end_full_block()
    }

    /// Return the number of operations so far.
    pub fn operations(&self) -> u64 {
        self.state.operations
    }

    /// Return what is written to.
    pub fn inner(&mut self) -> &mut W {
        &mut self.to
    }

    /// Write what is still in memory: after a crash, it can be read up to here.
    pub fn flush(&mut self) -> Result<()> {
        self.end_block()?;
        let flushed = self.to.flush();
        flushed.map_err(|error| self.at(Problem::Io(error)))
    }

    /// Write the end record and return what was written to.
    pub fn finish(mut self, end: End) -> Result<W> {
        self.state.end(&end).map_err(|problem| self.at(problem))?;
        self.block.push(tag::END);
        for value in [end.operations, end.lost, end.elsewhere, end.duration_ns] {
            number(&mut self.block, value);
        }
        self.flush()?;
        Ok(self.to)
    }

    fn end_full_block(&mut self) -> Result<()> {
        match self.block.len() >= FULL_BLOCK {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    fn end_block(&mut self) -> Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(self.block.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&crc32fast::hash(&self.block).to_le_bytes());
        let written = (self.to.write_all(&head)).and_then(|()| self.to.write_all(&self.block));
        written.map_err(|error| self.at(Problem::Io(error)))?;
        self.written += (head.len() + self.block.len()) as u64;
        self.block.clear();
        Ok(())
    }

    fn at(&self, problem: Problem) -> Error {
        Error {
            offset: self.written,
            problem,
        }
    }
}

fn kind_number(kind: FileKind) -> u8 {
    let found = FileKind::ALL.iter().position(|known| *known == kind);
    found.unwrap_or(0) as u8
}

pub fn number(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Write by how much a value is more than another, modulo 2^64: small steps up and down are short.
fn difference(to: &mut Vec<u8>, value: u64, from: u64) {
    let step = value.wrapping_sub(from) as i64;
    number(to, ((step << 1) ^ (step >> 63)) as u64);
}

fn string(to: &mut Vec<u8>, bytes: &[u8]) {
    number(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}
