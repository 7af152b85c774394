//! Small traces for tests.

use crate::{Call, End, FileKind, FileRecord, Header, Op, ThreadRecord, Writer, VERSION};

pub fn header() -> Header {
    Header {
        version: VERSION,
        recorded_at: "2026-01-02T03:04:05Z".to_string(),
        kernel: "6.12.0".to_string(),
        command: vec!["make".to_string()],
        under: "/srv".to_string(),
        names_hashed: false,
    }
}

pub fn file(id: u32, path: &str, size: Option<u64>) -> FileRecord {
    FileRecord {
        id,
        path: path.as_bytes().to_vec(),
        kind: FileKind::Regular,
        size,
        stored: size.unwrap_or(0),
        extents: 1,
        position: 0,
    }
}

/// Return an operation of the first thread on no file.
pub fn op(call: Call, start_ns: u64) -> Op {
    Op {
        thread: 0,
        call,
        positional: true,
        vectors: 1,
        uring: false,
        file: None,
        other: None,
        handle: None,
        offset: 0,
        length: 0,
        result: 0,
        flags: 0,
        target: None,
        start_ns,
        duration_ns: 0,
    }
}

/// Return a trace of these files, in order, and this many threads. Without `end` it is cut off.
pub fn trace(
    files: &[(&str, Option<u64>)],
    threads: u32,
    operations: &[Op],
    end: Option<End>,
) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes, &header()).unwrap();
    for (id, (path, size)) in (0..).zip(files) {
        writer.file(&file(id, path, *size)).unwrap();
    }
    for id in 0..threads {
        let thread = ThreadRecord {
            id,
            process: 0,
            started_by: None,
            name: String::new(),
        };
        writer.thread(&thread).unwrap();
    }
    operations.iter().for_each(|op| writer.op(op).unwrap());
    let operations = operations.len() as u64;
    match end {
        Some(end) => drop(writer.finish(End { operations, ..end }).unwrap()),
        None => writer.flush().unwrap(),
    }
    bytes
}
