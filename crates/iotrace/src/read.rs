//! Reads a trace, which may be damaged or hostile.

use std::io::Read;

use crate::error::{Error, Problem, Result};
use crate::record::{bit, tag, target, Target};
use crate::record::{Call, End, FileKind, FileRecord, Header, Op, Record, ThreadRecord};
use crate::state::{self, State};
use crate::{MAGIC, MAX_BLOCK, MAX_PATH, MAX_STRING};

type Parsed<T> = std::result::Result<T, Problem>;

/// Reads a trace record by record: an iterator that ends after the end record, or after an error.
pub struct Reader<R: Read> {
    from: R,
    /// Where the current block's payload starts in the trace.
    start: u64,
    block: Vec<u8>,
    /// Where the next record starts in the block.
    next: usize,
    state: State,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Read what stands before the records.
    pub fn new(from: R) -> Result<(Header, Self)> {
        let mut reader = Reader {
            from,
            start: 0,
            block: Vec::new(),
            next: 0,
            state: State::default(),
            done: false,
        };
        let head = MAGIC.len() + 2;
        reader.fill(head)?;
        if reader.block.get(..MAGIC.len()) != Some(&MAGIC[..]) {
            return Err(reader.at(Problem::NotATrace));
        }
        let version = match reader.block.get(MAGIC.len()..) {
            Some([low, high]) => u16::from_le_bytes([*low, *high]),
            _ => return Err(reader.at(Problem::CutOff)),
        };
        if version != crate::VERSION {
            return Err(reader.at(Problem::Version(version)));
        }
        if !reader.read_block()? {
            return Err(reader.at(Problem::CutOff));
        }
        let mut cursor = Cursor(&reader.block);
        let header = cursor
            .header(version)
            .map_err(|problem| reader.at(problem))?;
        let rest = cursor.0.len();
        reader.next = reader.block.len() - rest;
        if rest > 0 {
            return Err(reader.at(Problem::Tag(reader.block[reader.next])));
        }
        Ok((header, reader))
    }

    /// Return the number of operations so far.
    pub fn operations(&self) -> u64 {
        self.state.operations
    }

    fn record(&mut self) -> Result<Record> {
        if self.next == self.block.len() && !self.read_block()? {
            return Err(self.at(Problem::CutOff));
        }
        let mut cursor = Cursor(&self.block[self.next..]);
        let record = cursor.record(&self.state);
        let rest = cursor.0.len();
        let checked = record.and_then(|record| {
            match &record {
                Record::File(file) => self.state.file(file)?,
                Record::Thread(thread) => self.state.thread(thread)?,
                Record::Op(op) => self.state.op(op)?,
                Record::End(end) => self.state.end(end)?,
            }
            Ok(record)
        });
        let record = checked.map_err(|problem| self.at(problem))?;
        self.next = self.block.len() - rest;
        if matches!(record, Record::End(_)) {
            self.done = true;
            if rest > 0 || self.read_block()? {
                return Err(self.at(Problem::AfterEnd));
            }
        }
        Ok(record)
    }

    /// Read the next block; return false at the end of the file.
    fn read_block(&mut self) -> Result<bool> {
        self.fill(8)?;
        let (length, checksum) = match self.block[..] {
            [] => return Ok(false),
            [a, b, c, d, e, f, g, h] => {
                let length = u32::from_le_bytes([a, b, c, d]) as usize;
                (length, u32::from_le_bytes([e, f, g, h]))
            }
            _ => return Err(self.at(Problem::CutOff)),
        };
        if length == 0 || length > MAX_BLOCK {
            return Err(self.at(Problem::BlockLength(length as u64)));
        }
        self.fill(length)?;
        if self.block.len() < length {
            return Err(self.at(Problem::CutOff));
        }
        match crc32fast::hash(&self.block) == checksum {
            true => Ok(true),
            false => Err(self.at(Problem::Checksum)),
        }
    }

    /// Replace the block by the next bytes of the file: fewer if it ends before. The buffer grows
    /// only as the bytes arrive.
    fn fill(&mut self, length: usize) -> Result<()> {
        self.start += self.block.len() as u64;
        self.next = 0;
        self.block.clear();
        let read = (&mut self.from)
            .take(length as u64)
            .read_to_end(&mut self.block);
        match read {
            Ok(_) => Ok(()),
            Err(error) => Err(self.at(Problem::Io(error))),
        }
    }

    fn at(&self, problem: Problem) -> Error {
        Error {
            offset: self.start + self.next as u64,
            problem,
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let record = self.record();
        self.done |= record.is_err();
        Some(record)
    }
}

/// The rest of a block.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn header(&mut self, version: u16) -> Parsed<Header> {
        let header = Header {
            version,
            recorded_at: self.text("recorded_at")?,
            kernel: self.text("kernel")?,
            under: self.text("under")?,
            names_hashed: self.byte()? != 0,
            command: {
                let parts = self.number()?;
                // Every part takes a byte at least: the collection ends with the block.
                (0..parts)
                    .map(|_| self.text("command"))
                    .collect::<Parsed<_>>()?
            },
        };
        state::header(&header)?;
        Ok(header)
    }

    fn record(&mut self, state: &State) -> Parsed<Record> {
        match self.byte()? {
            tag::FILE => self.file(state.files).map(Record::File),
            tag::THREAD => self.thread(state.threads.len() as u32).map(Record::Thread),
            tag::END => self.end().map(Record::End),
            other => match Call::ALL.get(usize::from(other ^ tag::OPERATION)) {
                Some(call) => self.op(*call, state).map(Record::Op),
                None => Err(Problem::Tag(other)),
            },
        }
    }

    fn file(&mut self, id: u32) -> Parsed<FileRecord> {
        let path = self.string("bytes of a path", MAX_PATH)?.to_vec();
        let kind = self.byte()?;
        let kind = match FileKind::ALL.get(usize::from(kind)) {
            Some(kind) => *kind,
            None => return Err(Problem::Number("kind of file")),
        };
        let size = match self.byte()? {
            0 => None,
            1 => Some(self.number()?),
            _ => return Err(Problem::Number("size")),
        };
        Ok(FileRecord {
            id,
            path,
            kind,
            size,
            stored: self.number()?,
            extents: self.narrow("extents")?,
            position: self.number()?,
        })
    }

    fn thread(&mut self, id: u32) -> Parsed<ThreadRecord> {
        let process = self.narrow("process")?;
        let started_by: u32 = self.narrow("thread")?;
        Ok(ThreadRecord {
            id,
            process,
            started_by: started_by.checked_sub(1),
            name: self.text("thread name")?,
        })
    }

    fn end(&mut self) -> Parsed<End> {
        Ok(End {
            operations: self.number()?,
            lost: self.number()?,
            elsewhere: self.number()?,
            duration_ns: self.number()?,
        })
    }

    fn op(&mut self, call: Call, state: &State) -> Parsed<Op> {
        let bits = self.byte()?;
        let thread: u32 = self.narrow("thread")?;
        let last = match state.threads.get(thread as usize) {
            Some(last) => *last,
            None => {
                let (what, number) = ("thread", thread.into());
                return Err(Problem::Unknown { what, number });
            }
        };
        let has = |bit| bits & bit != 0;
        let file = match has(bit::FILE) {
            true => Some(narrowed("file", self.stepped(last.file.into())?)?),
            false => None,
        };
        let other = match has(bit::OTHER) {
            true => Some(self.narrow("other")?),
            false => None,
        };
        let handle = match has(bit::HANDLE) {
            true => Some(narrowed("handle", self.stepped(last.handle.into())?)?),
            false => None,
        };
        let vectors = match has(bit::VECTORS) {
            true => self.narrow("vectors")?,
            false => 1,
        };
        let offset = match has(bit::OFFSET) {
            true => self.stepped(last.offset)?,
            false => last.offset,
        };
        let length = self.stepped(last.length)?;
        let result = match has(bit::RESULT) {
            true => self.stepped(0)? as i64,
            false => length as i64,
        };
        let mut flags: u32 = self.narrow("flags")?;
        let mut to = None;
        if call == Call::Copy {
            let positional = match flags {
                target::UNKNOWN => None,
                target::AT_POSITION => Some(false),
                target::POSITIONAL => Some(true),
                _ => return Err(Problem::Number("target of a copy")),
            };
            flags = 0;
            if let Some(positional) = positional {
                let offset = self.number()?;
                to = Some(Target { offset, positional });
            }
        }
        Ok(Op {
            thread,
            call,
            positional: has(bit::POSITIONAL),
            vectors,
            uring: has(bit::URING),
            file,
            other,
            handle,
            offset,
            length,
            result,
            flags,
            target: to,
            start_ns: self.stepped(last.end_ns)?,
            duration_ns: self.number()?,
        })
    }

    fn byte(&mut self) -> Parsed<u8> {
        let (first, rest) = self.0.split_first().ok_or(Problem::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Parsed<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Problem::Number("number"))
    }

    fn narrow<T: TryFrom<u64>>(&mut self, what: &'static str) -> Parsed<T> {
        narrowed(what, self.number()?)
    }

    /// Return the value that is the next difference away from another one.
    fn stepped(&mut self, from: u64) -> Parsed<u64> {
        let folded = self.number()?;
        let step = (folded >> 1) ^ (folded & 1).wrapping_neg();
        Ok(from.wrapping_add(step))
    }

    fn string(&mut self, what: &'static str, most: usize) -> Parsed<&[u8]> {
        let length = self.number()?;
        if length > most as u64 {
            let most = most as u64;
            return Err(Problem::Limit { what, most });
        }
        let (string, rest) = (self.0)
            .split_at_checked(length as usize)
            .ok_or(Problem::Short)?;
        self.0 = rest;
        Ok(string)
    }

    fn text(&mut self, what: &'static str) -> Parsed<String> {
        let bytes = self.string(what, MAX_STRING)?.to_vec();
        String::from_utf8(bytes).map_err(|_| Problem::Text(what))
    }
}

fn narrowed<T: TryFrom<u64>>(what: &'static str, value: u64) -> Parsed<T> {
    T::try_from(value).map_err(|_| Problem::Number(what))
}
