//! What the reader and the writer both know of the records so far, and check.

use crate::error::Problem;
use crate::record::{End, FileRecord, Header, Op, ThreadRecord};
use crate::{MAX_FILES, MAX_OPERATIONS, MAX_PATH, MAX_STRING, MAX_THREADS, VERSION};

/// What an operation is relative to: the one before it of the same thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct Last {
    pub file: u32,
    pub handle: u32,
    /// Where it ended in the file.
    pub offset: u64,
    pub length: u64,
    pub end_ns: u64,
}

#[derive(Debug, Default)]
pub struct State {
    pub files: u32,
    pub threads: Vec<Last>,
    handles: u32,
    pub operations: u64,
    /// When the last operation ended.
    end_ns: u64,
}

pub fn header(header: &Header) -> Result<(), Problem> {
    if header.version != VERSION {
        return Err(Problem::Version(header.version));
    }
    text("recorded_at", &header.recorded_at)?;
    text("kernel", &header.kernel)?;
    text("under", &header.under)?;
    header
        .command
        .iter()
        .try_for_each(|part| text("command", part))
}

impl State {
    pub fn file(&mut self, file: &FileRecord) -> Result<(), Problem> {
        dense("file", file.id, self.files)?;
        limit("files", self.files.into(), MAX_FILES.into())?;
        plain(&file.path)?;
        self.files += 1;
        Ok(())
    }

    pub fn thread(&mut self, thread: &ThreadRecord) -> Result<(), Problem> {
        let next = self.threads.len() as u32;
        dense("thread", thread.id, next)?;
        limit("threads", next.into(), MAX_THREADS.into())?;
        if thread.process >= MAX_THREADS {
            return Err(Problem::Limit {
                what: "processes",
                most: MAX_THREADS.into(),
            });
        }
        text("thread name", &thread.name)?;
        if let Some(by) = thread.started_by {
            known("thread", by, next)?;
        }
        self.threads.push(Last::default());
        Ok(())
    }

    pub fn op(&mut self, op: &Op) -> Result<(), Problem> {
        limit("operations", self.operations, MAX_OPERATIONS)?;
        known("thread", op.thread, self.threads.len() as u32)?;
        if let Some(file) = op.file {
            known("file", file, self.files)?;
        }
        match op.other {
            Some(thread) if op.call.concerns_thread() => {
                known("thread", thread, self.threads.len() as u32)?;
            }
            Some(file) => known("file", file, self.files)?,
            None => {}
        }
        let end_ns = match op.start_ns.checked_add(op.duration_ns) {
            Some(end_ns) => end_ns,
            None => return Err(Problem::Number("duration")),
        };
        if end_ns < self.end_ns {
            let before_ns = self.end_ns;
            return Err(Problem::Order { end_ns, before_ns });
        }
        if let Some(handle) = op.handle {
            if handle > self.handles {
                return Err(Problem::Dense {
                    what: "handle",
                    number: handle.into(),
                    next: self.handles.into(),
                });
            }
            // It cannot overflow: there are not more handles than operations.
            self.handles = self.handles.max(handle + 1);
        }
        self.end_ns = end_ns;
        self.operations += 1;
        let last = &mut self.threads[op.thread as usize];
        last.file = op.file.unwrap_or(last.file);
        last.handle = op.handle.unwrap_or(last.handle);
        last.offset = op.offset.wrapping_add(op.result.max(0) as u64);
        last.length = op.length;
        last.end_ns = end_ns;
        Ok(())
    }

    pub fn end(&self, end: &End) -> Result<(), Problem> {
        let (claimed, counted) = (end.operations, self.operations);
        match claimed == counted {
            true => Ok(()),
            false => Err(Problem::Count { claimed, counted }),
        }
    }
}

/// Check that a path is relative and stays below its folder. The folder itself is the empty path.
fn plain(path: &[u8]) -> Result<(), Problem> {
    if path.len() > MAX_PATH {
        return Err(Problem::Limit {
            what: "bytes of a path",
            most: MAX_PATH as u64,
        });
    }
    let bad = |part: &[u8]| matches!(part, b"" | b"." | b"..") || part.contains(&0);
    if !path.is_empty() && path.split(|byte| *byte == b'/').any(bad) {
        return Err(Problem::Path(String::from_utf8_lossy(path).into_owned()));
    }
    Ok(())
}

fn text(what: &'static str, text: &str) -> Result<(), Problem> {
    match text.len() <= MAX_STRING {
        true => Ok(()),
        false => Err(Problem::Limit {
            what,
            most: MAX_STRING as u64,
        }),
    }
}

fn dense(what: &'static str, number: u32, next: u32) -> Result<(), Problem> {
    match number == next {
        true => Ok(()),
        false => Err(Problem::Dense {
            what,
            number: number.into(),
            next: next.into(),
        }),
    }
}

fn limit(what: &'static str, count: u64, most: u64) -> Result<(), Problem> {
    match count < most {
        true => Ok(()),
        false => Err(Problem::Limit { what, most }),
    }
}

fn known(what: &'static str, number: u32, count: u32) -> Result<(), Problem> {
    match number < count {
        true => Ok(()),
        false => Err(Problem::Unknown {
            what,
            number: number.into(),
        }),
    }
}
