use super::*;

fn header() -> Header {
    Header {
        version: VERSION,
        recorded_at: "2026-01-02T03:04:05Z".to_string(),
        kernel: "6.12.0".to_string(),
        command: vec!["sqlite3".to_string(), "data base".to_string()],
        under: "/srv/data".to_string(),
        names_hashed: false,
    }
}

fn file(id: u32, path: &str) -> FileRecord {
    FileRecord {
        id,
        path: path.as_bytes().to_vec(),
        kind: FileKind::Regular,
        size: Some(1 << 33),
        stored: 4096,
        extents: 3,
        position: 1 << 40,
    }
}

fn thread(id: u32, started_by: Option<u32>) -> ThreadRecord {
    ThreadRecord {
        id,
        process: id,
        started_by,
        name: "worker".to_string(),
    }
}

fn op(thread: u32, start_ns: u64) -> Op {
    Op {
        thread,
        call: Call::Read,
        positional: false,
        vectors: 1,
        uring: false,
        file: Some(0),
        other: None,
        handle: Some(0),
        offset: 0,
        length: 4096,
        result: 4096,
        flags: 0,
        target: None,
        start_ns,
        duration_ns: 10,
    }
}

fn end(operations: u64) -> End {
    End {
        operations,
        lost: 1,
        elsewhere: u64::MAX,
        duration_ns: 7,
    }
}

fn write(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for record in records {
        match record {
            Record::File(file) => writer.file(file).unwrap(),
            Record::Thread(thread) => writer.thread(thread).unwrap(),
            Record::Op(op) => writer.op(op).unwrap(),
            Record::End(end) => return writer.finish(*end).unwrap(),
        }
    }
    writer.flush().unwrap();
    std::mem::take(writer.inner())
}

/// Return all that can be read, and the error after it.
fn read(bytes: &[u8]) -> (Vec<Record>, Option<Error>) {
    let mut records = Vec::new();
    let reader = match Reader::new(bytes) {
        Ok((_, reader)) => reader,
        Err(error) => return (records, Some(error)),
    };
    for record in reader {
        match record {
            Ok(record) => records.push(record),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

/// A trace with every call, and the extremes of every field.
fn rich() -> Vec<Record> {
    let mut records = vec![
        Record::File(file(0, "a/b")),
        Record::File(FileRecord {
            size: None,
            extents: u32::MAX,
            stored: u64::MAX,
            position: u64::MAX,
            kind: FileKind::Link,
            ..file(1, "")
        }),
        Record::Thread(thread(0, None)),
        Record::Thread(thread(1, Some(0))),
    ];
    for (index, call) in Call::ALL.into_iter().enumerate() {
        records.push(Record::Op(Op {
            call,
            other: call.concerns_thread().then_some(1),
            ..op((index % 2) as u32, 100 * index as u64)
        }));
    }
    records.push(Record::Op(Op {
        positional: true,
        vectors: u16::MAX,
        uring: true,
        file: None,
        other: Some(1),
        handle: Some(1),
        offset: u64::MAX,
        length: u64::MAX,
        result: i64::MIN,
        flags: u32::MAX,
        start_ns: 0,
        duration_ns: u64::MAX,
        ..op(1, 0)
    }));
    for (offset, positional) in [(0, false), (u64::MAX, true)] {
        records.push(Record::Op(Op {
            call: Call::Copy,
            other: Some(1),
            target: Some(Target { offset, positional }),
            ..op(0, u64::MAX - 10)
        }));
    }
    records.push(Record::Op(Op {
        result: -2,
        ..op(0, u64::MAX - 10)
    }));
    records.push(Record::End(end(Call::ALL.len() as u64 + 4)));
    records
}

#[test]
fn what_was_written_is_read() {
    let bytes = write(&rich());
    let (back, reader) = Reader::new(&bytes[..]).unwrap();
    assert_eq!(back, header());
    let records: Result<Vec<_>> = reader.collect();
    assert_eq!(records.unwrap(), rich());
}

#[test]
fn calls_have_the_numbers_of_their_places_and_names_of_their_own() {
    for (index, call) in Call::ALL.into_iter().enumerate() {
        assert_eq!(call as usize, index);
    }
    let names: std::collections::BTreeSet<_> = Call::ALL.map(Call::name).into_iter().collect();
    assert_eq!(names.len(), Call::ALL.len());
}

#[test]
fn a_sequential_read_takes_few_bytes() {
    let mut records = vec![Record::File(file(0, "a")), Record::Thread(thread(0, None))];
    let count = 100_000;
    records.extend((0..count).map(|index| {
        Record::Op(Op {
            offset: index * 4096,
            ..op(0, index * 1000)
        })
    }));
    records.push(Record::End(end(count)));
    let bytes = write(&records);
    assert!(bytes.len() < 11 * count as usize, "{} bytes", bytes.len());
    let (back, error) = read(&bytes);
    assert!(error.is_none());
    assert_eq!(back, records);
}

#[test]
fn a_cut_off_trace_is_readable_up_to_there() {
    let mut records = rich();
    records.pop();
    let bytes = write(&records);
    let (back, error) = read(&bytes);
    assert_eq!(back, records);
    assert!(error.unwrap().is_cut_off());
    for length in 0..bytes.len() {
        let (back, error) = read(&bytes[..length]);
        let error = error.unwrap();
        assert!(back.is_empty());
        assert!(error.offset <= length as u64);
        assert!(error.is_cut_off() || length < MAGIC.len(), "{error}");
    }
}

#[test]
fn blocks_before_a_damaged_one_are_read() {
    let mut records = vec![Record::File(file(0, "a")), Record::Thread(thread(0, None))];
    records.extend((0..20_000).map(|index| Record::Op(op(0, index * 1000))));
    records.push(Record::End(end(20_000)));
    let mut bytes = write(&records);
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let (back, error) = read(&bytes);
    let error = error.unwrap();
    assert!(matches!(error.problem, Problem::Checksum), "{error}");
    assert!(back.len() > 1000 && back.len() < records.len());
    assert_eq!(back, records[..back.len()]);
}

#[test]
fn every_changed_byte_is_noticed() {
    let bytes = write(&rich());
    for place in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[place] ^= 0x10;
        assert!(read(&changed).1.is_some(), "byte {place}");
    }
}

/// Replace the payload of the last block, with a checksum that matches.
fn forge(payload: &[u8]) -> Vec<u8> {
    let mut bytes = write(&[]);
    bytes.extend((payload.len() as u32).to_le_bytes());
    bytes.extend(crc32fast::hash(payload).to_le_bytes());
    bytes.extend(payload);
    bytes
}

#[test]
fn any_payload_is_read_or_refused() {
    // A small generator of numbers, so that every failure can be repeated.
    let mut state = 1_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..20_000 {
        let length = 1 + random() as usize % 200;
        let mut payload: Vec<u8> = (0..length).map(|_| random() as u8).collect();
        // Most of them with a file and a thread in front, so that operations are reached.
        if random() % 4 > 0 {
            let mut known = b"\x00\x01a\x00\x01\x05\x05\x01\x01\x00\x00\x01t".to_vec();
            known.extend(payload.iter().map(|byte| {
                if random() % 3 == 0 {
                    0x80 | (byte % 27)
                } else {
                    *byte % 8
                }
            }));
            payload = known;
        }
        let (records, error) = read(&forge(&payload));
        assert!(records.len() <= payload.len());
        assert!(error.is_some() || matches!(records.last(), Some(Record::End(_))));
    }
}

#[test]
fn a_claimed_length_is_not_believed() {
    let mut huge = vec![0];
    write::number(&mut huge, u64::MAX);
    assert!(matches!(
        read(&forge(&huge)).1.unwrap().problem,
        Problem::Limit { .. }
    ));
    let mut bytes = write(&[]);
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.extend([0; 4]);
    assert!(matches!(
        read(&bytes).1.unwrap().problem,
        Problem::BlockLength(_)
    ));
}

#[test]
fn other_files_and_versions_are_refused() {
    assert!(matches!(
        read(b"SQLite format 3\0").1.unwrap().problem,
        Problem::NotATrace
    ));
    let mut bytes = write(&rich());
    bytes[MAGIC.len()] = VERSION as u8 + 1;
    let error = read(&bytes).1.unwrap();
    assert!(matches!(error.problem, Problem::Version(found) if found == VERSION + 1));
}

#[test]
fn paths_out_of_the_folder_are_refused() {
    let paths = [
        "/a", "..", "a/..", "../a", "a/../b", ".", "a//b", "a/", "a\0b",
    ];
    let long = "a".repeat(MAX_PATH + 1);
    for path in paths.into_iter().chain([long.as_str()]) {
        let mut writer = Writer::new(Vec::new(), &header()).unwrap();
        assert!(writer.file(&file(0, path)).is_err(), "{path:?}");
        let mut payload = vec![0];
        write::number(&mut payload, path.len() as u64);
        payload.extend(path.as_bytes());
        payload.extend([0, 0, 0, 0, 0]);
        let (records, error) = read(&forge(&payload));
        assert!(records.is_empty());
        let problem = error.unwrap().problem;
        assert!(
            matches!(problem, Problem::Path(_) | Problem::Limit { .. }),
            "{problem}"
        );
    }
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for (id, path) in ["a", "a/b", "..a", "a/..b", ".a", ""]
        .into_iter()
        .enumerate()
    {
        writer.file(&file(id as u32, path)).unwrap();
    }
}

#[test]
fn unknown_numbers_and_wrong_orders_are_refused() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    assert!(writer.file(&file(1, "a")).is_err());
    writer.file(&file(0, "a")).unwrap();
    assert!(writer.op(&op(0, 0)).is_err());
    // No thread is started by itself or a later one: starts cannot be a cycle.
    assert!(writer.thread(&thread(0, Some(0))).is_err());
    assert!(writer.thread(&thread(0, Some(1))).is_err());
    writer.thread(&thread(0, None)).unwrap();
    writer.op(&op(0, 1000)).unwrap();
    let wrong = [
        Op {
            file: Some(1),
            ..op(0, 2000)
        },
        Op {
            other: Some(1),
            ..op(0, 2000)
        },
        Op {
            call: Call::Wait,
            other: Some(1),
            ..op(0, 2000)
        },
        Op {
            handle: Some(2),
            ..op(0, 2000)
        },
        Op {
            duration_ns: u64::MAX,
            ..op(0, 2000)
        },
        op(0, 999),
    ];
    for op in wrong {
        assert!(writer.op(&op).is_err(), "{op:?}");
    }
    assert!(writer.operations() == 1);
    assert!(writer.finish(end(2)).is_err());
}

#[test]
fn nothing_follows_the_end() {
    let mut bytes = write(&rich());
    bytes.extend(&forge(&[2, 0, 0, 0, 0])[write(&[]).len()..]);
    let (records, error) = read(&bytes);
    assert_eq!(records.len(), rich().len() - 1);
    assert!(matches!(error.unwrap().problem, Problem::AfterEnd));
}
