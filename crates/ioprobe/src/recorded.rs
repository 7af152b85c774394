//! Commands on recorded traces: `ioprobe trace summary|iolog|iolog-files FILE`, and `ioprobe trace
//! write FILE`, which makes a trace from JSON lines.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::process::ExitCode;

use iotrace::{iolog, summary, Call, End, FileKind, FileRecord, Header, Op, ThreadRecord, Writer};
use serde::{Deserialize, Serialize};

/// Run a command; errors go to standard error, with exit status 1.
pub fn run(command: &str, file: &str) -> ExitCode {
    let done = match command {
        "summary" => summarise(file),
        "iolog" => log(file),
        "iolog-files" => log_files(file),
        "write" => write(file),
        other => Err(format!(
            "trace: no command {other}, only summary, iolog, iolog-files and write"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), String>;

fn summarise(file: &str) -> Done {
    print(&summary::summarise(opened(file)?).map_err(|error| of(file, error))?)
}

fn log(file: &str) -> Done {
    let output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = iolog::write(opened(file)?, output).map_err(|error| of(file, error))?;
    let text = serde_json::to_string(&written).map_err(|error| error.to_string())?;
    eprintln!("{text}");
    Ok(())
}

fn log_files(file: &str) -> Done {
    print(&iolog::files(opened(file)?).map_err(|error| of(file, error))?)
}

fn opened(file: &str) -> Result<BufReader<File>, String> {
    let opened = File::open(file).map_err(|error| of(file, error))?;
    Ok(BufReader::with_capacity(1 << 16, opened))
}

fn print(document: &impl Serialize) -> Done {
    let mut output = BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut output, document).map_err(|error| error.to_string())?;
    writeln!(output)
        .and_then(|()| output.flush())
        .map_err(|error| error.to_string())
}

fn of(file: &str, error: impl std::fmt::Display) -> String {
    format!("{file}: {error}")
}

/// A line of the input of `write`. The first is the header.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Header(HeaderLine),
    File(FileLine),
    Thread(ThreadLine),
    Op(OpLine),
    End(EndLine),
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct HeaderLine {
    recorded_at: String,
    kernel: String,
    command: Vec<String>,
    under: String,
    names_hashed: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct FileLine {
    id: u32,
    path: String,
    /// regular, directory, link or other
    kind: String,
    size: Option<u64>,
    stored: u64,
    extents: u32,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ThreadLine {
    id: u32,
    process: u32,
    started_by: Option<u32>,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct OpLine {
    thread: u32,
    call: String,
    positional: bool,
    vectors: Option<u16>,
    uring: bool,
    file: Option<u32>,
    other: Option<u32>,
    handle: Option<u32>,
    offset: u64,
    length: u64,
    /// The length, if it is not given.
    result: Option<i64>,
    flags: u32,
    start_ns: u64,
    duration_ns: u64,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct EndLine {
    lost: u64,
    elsewhere: u64,
    duration_ns: u64,
}

fn write(file: &str) -> Done {
    let mut lines = io::stdin().lock().lines();
    let first = lines.next().ok_or("standard input is empty")?;
    let Line::Header(header) = parsed(first)? else {
        return Err("the first line is not a header".to_string());
    };
    let header = Header {
        version: iotrace::VERSION,
        recorded_at: header.recorded_at,
        kernel: header.kernel,
        command: header.command,
        under: header.under,
        names_hashed: header.names_hashed,
    };
    let created = File::create(file).map_err(|error| of(file, error))?;
    let mut writer =
        Writer::new(BufWriter::new(created), &header).map_err(|error| of(file, error))?;
    for line in lines {
        let written = match parsed(line)? {
            Line::Header(_) => return Err("a second header".to_string()),
            Line::File(line) => writer.file(&line.record()?),
            Line::Thread(line) => writer.thread(&ThreadRecord {
                id: line.id,
                process: line.process,
                started_by: line.started_by,
                name: line.name,
            }),
            Line::Op(line) => writer.op(&line.record()?),
            Line::End(end) => {
                let operations = writer.operations();
                let ended = writer.finish(End {
                    operations,
                    lost: end.lost,
                    elsewhere: end.elsewhere,
                    duration_ns: end.duration_ns,
                });
                return match ended {
                    Ok(_) => Ok(()),
                    Err(error) => Err(of(file, error)),
                };
            }
        };
        written.map_err(|error| of(file, error))?;
    }
    writer.flush().map_err(|error| of(file, error))
}

fn parsed(line: io::Result<String>) -> Result<Line, String> {
    let line = line.map_err(|error| format!("read standard input: {error}"))?;
    serde_json::from_str(&line).map_err(|error| format!("{line:.200}: {error}"))
}

impl FileLine {
    fn record(self) -> Result<FileRecord, String> {
        let kind = match self.kind.as_str() {
            "" | "regular" => FileKind::Regular,
            "directory" => FileKind::Directory,
            "link" => FileKind::Link,
            "other" => FileKind::Other,
            other => return Err(format!("no kind of file is called {other}")),
        };
        Ok(FileRecord {
            id: self.id,
            path: self.path.into_bytes(),
            kind,
            size: self.size,
            stored: self.stored,
            extents: self.extents,
        })
    }
}

impl OpLine {
    fn record(self) -> Result<Op, String> {
        let call = Call::ALL.into_iter().find(|call| call.name() == self.call);
        let call = call.ok_or_else(|| format!("no call is called {}", self.call))?;
        Ok(Op {
            thread: self.thread,
            call,
            positional: self.positional,
            vectors: self.vectors.unwrap_or(1),
            uring: self.uring,
            file: self.file,
            other: self.other,
            handle: self.handle,
            offset: self.offset,
            length: self.length,
            result: self.result.unwrap_or(self.length as i64),
            flags: self.flags,
            start_ns: self.start_ns,
            duration_ns: self.duration_ns,
        })
    }
}
