use super::*;
use crate::{made, End, Target};

fn op(thread: u32, call: Call, start_ns: u64, duration_ns: u64) -> Op {
    Op {
        thread,
        positional: false,
        file: Some(0),
        handle: Some(0),
        duration_ns,
        ..made::op(call, start_ns)
    }
}

fn data(call: Call, at_ns: u64, handle: u32, offset: u64, result: i64) -> Op {
    Op {
        handle: Some(handle),
        offset,
        length: 8192,
        result,
        ..op(0, call, at_ns, 100)
    }
}

/// Return a trace of one file of 10,000 bytes, one that did not exist, and two threads.
fn trace(operations: &[Op], complete: bool) -> Vec<u8> {
    let end = End {
        operations: 0,
        lost: 3,
        elsewhere: 5,
        duration_ns: 1_000_000,
    };
    let files = [("data/old", Some(10_000)), ("new", None)];
    made::trace(&files, 2, operations, complete.then_some(end))
}

fn summary(operations: &[Op]) -> Summary {
    summarise(&trace(operations, true)[..]).unwrap()
}

fn totals<'a>(summary: &'a Summary, call: &str) -> &'a CallTotals {
    summary.calls.iter().find(|one| one.call == call).unwrap()
}

#[test]
fn calls_count_operations_bytes_and_errors() {
    let found = summary(&[
        data(Call::Read, 0, 0, 0, 4096),
        data(Call::Read, 1000, 0, 4096, 904),
        data(Call::Read, 2000, 0, 5000, 0),
        data(Call::Read, 3000, 0, 5000, -5),
    ]);
    let read = totals(&found, "read");
    assert_eq!((read.operations, read.errors, read.bytes), (4, 1, 5000));
    assert_eq!(read.size.unwrap().mean, 2500.0);
    assert_eq!((read.time_ns.total, read.time_ns.max), (400, 100));
    let wanted = Failure {
        call: "read",
        errno: 5,
        operations: 1,
    };
    assert_eq!(found.errors, [wanted]);
    assert_eq!((found.lost, found.elsewhere, found.complete), (3, 5, true));
}

#[test]
fn an_access_is_sequential_where_the_last_one_of_its_handle_ended() {
    let found = summary(&[
        data(Call::Read, 0, 0, 0, 4096),     // first
        data(Call::Read, 1000, 1, 0, 512),   // first of another handle
        data(Call::Read, 2000, 0, 4096, 1),  // sequential
        data(Call::Read, 3000, 0, 9000, 10), // random
        data(Call::Write, 4000, 0, 0, 7),    // first write
        data(Call::Write, 5000, 0, 7, 7),    // sequential, reads do not count
        op(0, Call::Close, 6000, 1),
        data(Call::Read, 7000, 0, 9010, 1), // first again: another open file of this number
    ]);
    let read = &found.read;
    assert_eq!((read.first, read.sequential, read.random), (3, 1, 1));
    assert_eq!((read.sequential_bytes, read.random_bytes), (1, 10));
    assert_eq!(
        (
            found.write.first,
            found.write.sequential,
            found.write.random
        ),
        (1, 1, 0)
    );
}

#[test]
fn sizes_are_counted_by_power_of_two_and_one_by_one() {
    let found = summary(&[
        data(Call::Write, 0, 0, 0, 4096),
        data(Call::Write, 1000, 0, 0, 4096),
        data(Call::Write, 2000, 0, 0, 4097),
        data(Call::Write, 3000, 0, 0, 1),
    ]);
    let sizes = |totals: &[SizeTotals]| -> Vec<(u64, u64, u64)> {
        totals
            .iter()
            .map(|one| (one.up_to, one.operations, one.bytes))
            .collect()
    };
    assert_eq!(
        sizes(&found.write.sizes),
        [(1, 1, 1), (4096, 2, 8192), (8192, 1, 4097)]
    );
    assert_eq!(
        sizes(&found.write.common),
        [(4096, 2, 8192), (1, 1, 1), (4097, 1, 4097)]
    );
}

#[test]
fn syncs_have_the_writes_since_the_one_before() {
    let found = summary(&[
        data(Call::Write, 0, 0, 0, 100),
        data(Call::Write, 1000, 0, 100, 50),
        op(0, Call::Fsync, 2000, 300),
        op(0, Call::Fdatasync, 3000, 100),
    ]);
    let syncs = found.syncs;
    assert_eq!((syncs.operations, syncs.files), (2, 1));
    assert_eq!(syncs.bytes_between.unwrap().total, 150);
    assert_eq!(syncs.writes_between.unwrap().max, 2);
    assert_eq!(syncs.time_share, 400.0 / 600.0);
}

#[test]
fn how_a_file_was_opened_counts_for_its_handle() {
    let open = Op {
        flags: O_DIRECT | O_DSYNC | O_CREAT,
        ..op(0, Call::Open, 0, 1)
    };
    let found = summary(&[
        open,
        data(Call::Write, 1000, 0, 0, 512),
        data(Call::Write, 2000, 1, 0, 512),
    ]);
    assert_eq!(
        (
            found.opens.operations,
            found.opens.direct,
            found.opens.create
        ),
        (1, 1, 1)
    );
    assert_eq!((found.write.direct, found.syncs.synchronous_writes), (1, 1));
}

#[test]
fn threads_in_flight_and_time() {
    let other = Op {
        handle: Some(1),
        ..op(1, Call::Read, 50, 100)
    };
    let found = summary(&[op(0, Call::Read, 0, 100), other, op(1, Call::Stat, 200, 50)]);
    let all = &found.concurrency;
    assert_eq!(
        (all.threads, all.processes, all.threads_with_io, all.peak),
        (2, 1, 2, 2)
    );
    assert_eq!((all.busy_ns, all.mean_while_busy), (150, 200.0 / 150.0));
    let timeline = &found.timeline;
    assert_eq!(timeline.span_ns * timeline.spans.len() as u64, 1_000_000);
    let span = &timeline.spans[0];
    assert_eq!((span.reads, span.metadata, span.threads), (2, 1, 2));
    assert_eq!(span.in_flight, 200.0 / timeline.span_ns as f64);
}

#[test]
fn the_timeline_covers_a_long_recording_with_few_spans() {
    let hour = 3_600_000_000_000;
    let operations: Vec<Op> = (0..=10)
        .map(|n| data(Call::Write, n * hour, 0, 0, 1000))
        .collect();
    let found = summary(&operations).timeline;
    assert!(
        found.spans.len() <= 240 && found.spans.len() > 120,
        "{}",
        found.spans.len()
    );
    assert!(found.span_ns * found.spans.len() as u64 >= 10 * hour);
    let written: u64 = found.spans.iter().map(|span| span.written_bytes).sum();
    assert_eq!(written, 11_000);
    let place = (5 * hour / found.span_ns) as usize;
    assert_eq!(found.spans[place].writes, 1);
}

fn at(offset: u64) -> Target {
    Target {
        offset,
        positional: true,
    }
}

#[test]
fn a_copy_reads_one_file_and_writes_another() {
    for (target, size) in [(None, 0), (Some(at(700)), 5700)] {
        let copy = Op {
            other: Some(1),
            target,
            ..data(Call::Copy, 0, 0, 0, 5000)
        };
        let found = summary(&[copy]);
        let files: Vec<(u32, u64, u64)> = (found.files.hottest.iter())
            .map(|file| (file.id, file.read_bytes, file.written_bytes))
            .collect();
        assert_eq!(files, [(0, 5000, 0), (1, 0, 5000)]);
        assert_eq!(found.files.hottest[1].size, size);
        assert_eq!((found.files.created, found.files.bytes_before), (1, 10_000));
        let span = &found.timeline.spans[0];
        assert_eq!((span.read_bytes, span.written_bytes), (5000, 5000));
    }
}

#[test]
fn a_cut_off_trace_is_summarised_up_to_there() {
    let found = summarise(&trace(&[data(Call::Read, 0, 0, 0, 8)], false)[..]).unwrap();
    assert_eq!(
        (found.complete, found.operations, found.duration_ns),
        (false, 1, 100)
    );
    assert!(summarise(&b"no trace at all"[..]).is_err());
}

#[test]
fn operations_for_the_largest_numbers_do_not_overflow() {
    let huge = Op {
        start_ns: 0,
        duration_ns: u64::MAX,
        ..data(Call::Write, 0, 0, u64::MAX, i64::MAX)
    };
    let found = summary(&[huge.clone(), huge]);
    assert_eq!(found.write.operations, 2);
    assert_eq!(found.duration_ns, u64::MAX);
}

#[test]
fn any_operations_are_counted_and_none_makes_it_panic() {
    let mut state = 1_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        state >> 20
    };
    let mut pick = |values: &[u64]| values[(next() % values.len() as u64) as usize];
    let mut operations = Vec::new();
    let mut end_ns = 0_u64;
    for number in 0..20_000_u64 {
        let call = Call::ALL[pick(&(0..Call::ALL.len() as u64).collect::<Vec<_>>()) as usize];
        end_ns = end_ns.saturating_add(pick(&[0, 1, 1000, 1 << 40, 1 << 62]));
        let start_ns = end_ns - pick(&[0, 1, end_ns / 2, end_ns]).min(end_ns);
        let present = |value: u64| (value != 9).then_some(value as u32);
        operations.push(Op {
            thread: pick(&[0, 1]) as u32,
            call,
            positional: pick(&[0, 1]) == 1,
            vectors: pick(&[0, 1, 7]) as u16,
            uring: pick(&[0, 1]) == 1,
            file: present(pick(&[0, 1, 9])),
            other: present(pick(&[0, 1, 9])),
            handle: (pick(&[0, 1]) == 1).then(|| number.min(pick(&[0, 3, number])) as u32),
            offset: pick(&[0, 4096, u64::MAX, 1 << 50]),
            length: pick(&[0, 1, u64::MAX]),
            result: pick(&[0, 1, 4096, i64::MAX as u64, u64::MAX, 1 << 63]) as i64,
            flags: pick(&[0, u64::from(u32::MAX)]) as u32,
            target: (pick(&[0, 1]) == 1).then(|| at(pick(&[0, 4096, u64::MAX]))),
            start_ns,
            duration_ns: end_ns - start_ns,
        });
    }
    // Handles must be dense.
    let mut handles = 0;
    for op in &mut operations {
        if let Some(handle) = &mut op.handle {
            *handle = (*handle).min(handles);
            handles = handles.max(*handle + 1);
        }
    }
    let found = summary(&operations);
    assert_eq!(found.operations, 20_000);
    let counted: u64 = found.calls.iter().map(|one| one.operations).sum();
    assert_eq!(counted, 20_000);
    let bytes = trace(&operations, true);
    let mut log = Vec::new();
    crate::iolog::write(&bytes[..], &mut log).unwrap();
    crate::iolog::files(&bytes[..]).unwrap();
}
