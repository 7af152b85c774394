//! `ioprobe record --dump FILE`: the records of a trace, as one JSON object per line.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

use iotrace::{FileKind, Reader, Record};
use serde_json::{json, Value};

use crate::error::{Doing, Error, Result};

pub fn dump(path: &Path, mut to: impl Write) -> Result<()> {
    let name = path.display();
    let wrong = |why: iotrace::Error| Error::verify(format!("read {name}: {why}"));
    let file = File::open(path).doing(|| format!("open {name}"))?;
    let (header, reader) = Reader::new(BufReader::new(file)).map_err(wrong)?;
    let header = json!({"header": {
        "recorded_at": header.recorded_at, "kernel": header.kernel, "command": header.command,
        "under": header.under, "names_hashed": header.names_hashed,
    }});
    let mut line = |value: Value| writeln!(to, "{value}").doing(|| "write the records");
    line(header)?;
    for record in reader {
        line(shown(record.map_err(wrong)?))?;
    }
    Ok(())
}

fn shown(record: Record) -> Value {
    match record {
        Record::File(file) => {
            let kind = match file.kind {
                FileKind::Regular => "file",
                FileKind::Directory => "directory",
                FileKind::Link => "symlink",
                FileKind::Other => "other",
            };
            json!({"file": {
                "id": file.id, "path": String::from_utf8_lossy(&file.path), "kind": kind,
                "size": file.size, "stored": file.stored, "extents": file.extents,
                "position": file.position,
            }})
        }
        Record::Thread(thread) => json!({"thread": {
            "id": thread.id, "process": thread.process, "started_by": thread.started_by,
            "name": thread.name,
        }}),
        Record::Op(op) => json!({"op": {
            "thread": op.thread, "call": op.call.name(), "positional": op.positional,
            "vectors": op.vectors, "uring": op.uring, "file": op.file, "other": op.other,
            "handle": op.handle, "offset": op.offset, "length": op.length, "result": op.result,
            "flags": op.flags,
            "target": op.target.map(|target| json!([target.offset, target.positional])),
            "start_ns": op.start_ns, "duration_ns": op.duration_ns,
        }}),
        Record::End(end) => json!({"end": {
            "operations": end.operations, "lost": end.lost, "elsewhere": end.elsewhere,
            "duration_ns": end.duration_ns,
        }}),
    }
}
