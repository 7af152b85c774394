//! Replays of traces written here, on real files.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use iotrace::made::{self, file};
use iotrace::{End, FileKind, FileRecord, Op, Target, ThreadRecord, Writer};

use super::order::WaitFor;
use super::*;
use crate::content::word;
use crate::protocol::ReplayCalls;

const MS: u64 = 1_000_000;
const READ_WRITE: u32 = libc::O_RDWR as u32;
const CREATE: u32 = (libc::O_RDWR | libc::O_CREAT) as u32;

/// A folder that goes away.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ioprobe-replay-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Folder(path)
    }

    fn tree(&self) -> PathBuf {
        self.0.join("tree")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A trace that is written here, an operation after the other.
struct Trace {
    writer: Writer<Vec<u8>>,
    operations: u64,
}

fn op(thread: u32, call: Call, start_ns: u64, duration_ns: u64) -> Op {
    Op {
        thread,
        positional: false,
        duration_ns,
        ..made::op(call, start_ns)
    }
}

impl Trace {
    fn new(files: &[FileRecord], threads: u32) -> Self {
        let mut writer = Writer::new(Vec::new(), &made::header()).unwrap();
        for file in files {
            writer.file(file).unwrap();
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
        Trace {
            writer,
            operations: 0,
        }
    }

    fn op(&mut self, op: Op) -> &mut Self {
        self.writer.op(&op).unwrap();
        self.operations += 1;
        self
    }

    fn open(&mut self, thread: u32, at: u64, file: u32, handle: u32, flags: u32) -> &mut Self {
        self.op(Op {
            file: Some(file),
            handle: Some(handle),
            flags,
            result: 3,
            ..op(thread, Call::Open, at, 1000)
        })
    }

    /// An operation on a handle that moves all the bytes it requests.
    fn on(&mut self, thread: u32, at: u64, call: Call, handle: u32, part: (u64, u64)) -> &mut Self {
        self.op(Op {
            handle: Some(handle),
            offset: part.0,
            length: part.1,
            result: part.1 as i64,
            ..op(thread, call, at, 1000)
        })
    }

    fn close(&mut self, thread: u32, at: u64, handle: u32) -> &mut Self {
        self.op(Op {
            handle: Some(handle),
            ..op(thread, Call::Close, at, 1000)
        })
    }

    fn bytes(self) -> Vec<u8> {
        let end = End {
            operations: self.operations,
            ..End::default()
        };
        self.writer.finish(end).unwrap()
    }

    fn plan(self) -> Plan {
        Plan::read(&self.bytes()[..], "test").unwrap()
    }
}

const AS_IT_WAS: Wanted = Wanted {
    fragments: false,
    owner: None,
};

fn make(folder: &Folder, plan: &Plan) -> Done {
    tree::make(folder.tree().to_str().unwrap(), plan, AS_IT_WAS).unwrap()
}

fn replayed(folder: &Folder, plan: &Plan, timing: Timing, calls: ReplayCalls) -> (u64, Vec<Ended>) {
    let clock = Clock::monotonic();
    let root = tree::open(folder.tree().to_str().unwrap()).unwrap();
    let pace = Pace { timing, speed: 1.0 };
    let replay = Replay::new(plan, &root, &clock, (pace, calls), |source| source.fill(7)).unwrap();
    let ((), begin, ended) = replay.run(|| ()).unwrap();
    (begin, ended)
}

/// Return how many operations had another result, and what the first was.
fn differing(plan: &Plan, ended: &[Ended]) -> (u64, Option<String>) {
    let count = ended.iter().flat_map(|one| one.differing).sum();
    let first = plan.threads.iter().zip(ended).find_map(|(thread, one)| {
        let (place, result) = one.first_differing?;
        Some(plan.in_words(&thread.steps[place as usize], result))
    });
    (count, first)
}

fn plain(folder: &Folder, plan: &Plan) -> (u64, Option<String>) {
    let (_, ended) = replayed(folder, plan, Timing::FlatOut, ReplayCalls::Recorded);
    differing(plan, &ended)
}

#[test]
fn the_tree_is_made_as_it_was_with_holes_and_without_what_came_later() {
    let folder = Folder::new();
    let files = [
        file(0, "a/b/data", Some(10_000)),
        FileRecord {
            stored: 8192,
            ..file(1, "sparse", Some(1 << 20))
        },
        file(2, "later", None),
        FileRecord {
            kind: FileKind::Directory,
            ..file(3, "empty", Some(4096))
        },
        FileRecord {
            kind: FileKind::Directory,
            ..file(4, "new", None)
        },
        file(5, "new/inside", None),
        FileRecord {
            kind: FileKind::Link,
            ..file(6, "link", Some(4))
        },
        FileRecord {
            kind: FileKind::Other,
            ..file(7, "socket", Some(0))
        },
        file(8, "old/later", None),
    ];
    let mut trace = Trace::new(&files, 1);
    trace.open(0, 0, 0, 0, READ_WRITE);
    let plan = trace.plan();
    make(&folder, &plan);
    let tree = folder.tree();
    let size = |name: &str| fs::metadata(tree.join(name)).map(|found| found.len()).ok();
    assert_eq!(size("a/b/data"), Some(10_000));
    assert_eq!(size("sparse"), Some(1 << 20));
    assert!(fs::metadata(tree.join("sparse")).unwrap().blocks() * 512 < 100_000);
    assert!(fs::metadata(tree.join("empty")).unwrap().is_dir());
    assert!(fs::metadata(tree.join("old")).unwrap().is_dir());
    assert_eq!(
        fs::read_link(tree.join("link")).unwrap(),
        Path::new("iotrial-replay-link")
    );
    for name in ["later", "new", "socket", "old/later"] {
        assert!(fs::symlink_metadata(tree.join(name)).is_err(), "{name}");
    }
    let data = fs::read(tree.join("a/b/data")).unwrap();
    assert!(data.iter().filter(|byte| **byte == 0).count() < 200);
}

/// Inodes are given out in the order in which files are made.
#[test]
fn files_are_made_in_the_order_in_which_they_were_on_the_disk() {
    let folder = Folder::new();
    let positions = [3 << 20, 1 << 20, 0, 2 << 20];
    let files: Vec<FileRecord> = (positions.iter().enumerate())
        .map(|(number, position)| FileRecord {
            position: *position,
            ..file(number as u32, &format!("file{number}"), Some(4096))
        })
        .collect();
    let mut trace = Trace::new(&files, 1);
    trace.open(0, 0, 0, 0, READ_WRITE);
    make(&folder, &trace.plan());
    let mut found: Vec<usize> = (0..files.len()).collect();
    let inode = |number: &usize| {
        let path = folder.tree().join(format!("file{number}"));
        fs::metadata(path).unwrap().ino()
    };
    found.sort_by_key(inode);
    assert_eq!(found, [2, 1, 3, 0]);
}

#[test]
fn a_replay_does_what_was_recorded_and_its_files_are_made_again() {
    let folder = Folder::new();
    let files = [
        file(0, "old", Some(8192)),
        file(1, "dir/new", None),
        file(2, "moved", None),
        file(3, "gone", Some(5)),
    ];
    let mut trace = Trace::new(&files, 1);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .on(0, 2000, Call::Read, 0, (0, 4096))
        .on(0, 4000, Call::Read, 0, (4096, 4096))
        // From here on at another position than the last one.
        .on(0, 6000, Call::Write, 0, (100, 50))
        .on(0, 8000, Call::Write, 0, (8192, 1000))
        .open(0, 10_000, 1, 1, CREATE)
        .on(0, 12_000, Call::Write, 1, (0, 70_000))
        .on(0, 14_000, Call::Fdatasync, 1, (0, 0))
        .close(0, 16_000, 1);
    trace.op(Op {
        file: Some(1),
        other: Some(2),
        ..op(0, Call::Rename, 18_000, 100)
    });
    trace.op(Op {
        file: Some(3),
        ..op(0, Call::Unlink, 20_000, 100)
    });
    trace.op(Op {
        file: Some(3),
        result: -i64::from(libc::ENOENT),
        ..op(0, Call::Stat, 21_000, 100)
    });
    trace.op(Op {
        handle: Some(0),
        length: 3000,
        ..op(0, Call::Truncate, 22_000, 100)
    });
    let plan = trace.plan();
    make(&folder, &plan);
    let before = fs::read(folder.tree().join("old")).unwrap();
    assert_eq!(plain(&folder, &plan), (0, None));
    let size = |name: &str| fs::metadata(folder.tree().join(name)).unwrap().len();
    assert_eq!((size("old"), size("moved")), (3000, 70_000));
    let after = fs::read(folder.tree().join("old")).unwrap();
    assert_eq!(after[100..150], [7; 50]);
    assert_eq!(
        (&after[..100], &after[150..]),
        (&before[..100], &before[150..3000])
    );
    assert!(!folder.tree().join("gone").exists() && !folder.tree().join("dir/new").exists());

    tree::reset(folder.tree().to_str().unwrap(), &plan, AS_IT_WAS).unwrap();
    assert_eq!(fs::read(folder.tree().join("old")).unwrap(), before);
    assert_eq!(size("gone"), 5);
    assert!(!folder.tree().join("moved").exists());
    assert_eq!(plain(&folder, &plan), (0, None));
}

#[test]
fn files_of_a_renamed_folder_are_made_where_they_were() {
    let folder_of = |id, path: &str, size| FileRecord {
        kind: FileKind::Directory,
        ..file(id, path, size)
    };
    let files = [
        folder_of(0, "old", Some(4096)),
        folder_of(1, "new", None),
        folder_of(2, "made", None),
        file(3, "made/a", None),
        folder_of(4, "moved", None),
    ];
    let mut trace = Trace::new(&files, 1);
    trace.op(Op {
        file: Some(0),
        other: Some(1),
        ..op(0, Call::Rename, 0, 100)
    });
    // First seen after the folder was renamed.
    trace.writer.file(&file(5, "new/data", Some(5000))).unwrap();
    trace
        .open(0, 2000, 5, 0, READ_WRITE)
        .on(0, 4000, Call::Read, 0, (0, 5000));
    trace.op(Op {
        file: Some(2),
        ..op(0, Call::Mkdir, 6000, 100)
    });
    trace.open(0, 8000, 3, 1, CREATE);
    trace.op(Op {
        file: Some(2),
        other: Some(4),
        ..op(0, Call::Rename, 10_000, 100)
    });
    trace.writer.file(&file(6, "moved/a", Some(0))).unwrap();
    trace.open(0, 12_000, 6, 2, READ_WRITE);
    let plan = trace.plan();
    assert!(plan.moves_folders);
    let folder = Folder::new();
    for _ in 0..2 {
        make(&folder, &plan);
        let names = |name: &str| folder.tree().join(name).exists();
        assert!(names("old/data") && !names("new") && !names("made") && !names("moved"));
        assert_eq!(plain(&folder, &plan), (0, None));
        assert!(names("new/data") && names("moved/a"));
    }
}

#[test]
fn another_result_is_counted_and_told() {
    let folder = Folder::new();
    let mut trace = Trace::new(&[file(0, "data", Some(4096))], 1);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .on(0, 2000, Call::Read, 0, (0, 4096))
        .on(0, 4000, Call::Read, 0, (4096, 4096));
    let plan = trace.plan();
    make(&folder, &plan);
    let (count, first) = plain(&folder, &plan);
    assert_eq!(count, 1);
    assert_eq!(first.unwrap(), "read data at 4096: recorded 4096, found 0");
    fs::remove_file(folder.tree().join("data")).unwrap();
    let (count, first) = plain(&folder, &plan);
    assert_eq!(count, 3);
    assert_eq!(
        first.unwrap(),
        "open data at 0: recorded 3, found No such file or directory"
    );
}

/// One thread works for a while and then creates a file that the other one reads.
fn handing_over() -> Trace {
    let mut trace = Trace::new(&[file(0, "own", None), file(1, "handed", None)], 2);
    trace.open(0, 0, 0, 0, CREATE);
    for n in 0..20 {
        let at = 2000 + n * 4000;
        trace.on(0, at, Call::Write, 0, (n * 100_000, 100_000));
        trace.on(0, at + 2000, Call::Fsync, 0, (0, 0));
    }
    trace
        .open(0, 100_000, 1, 1, CREATE)
        .on(0, 102_000, Call::Write, 1, (0, 5000))
        .open(1, 104_000, 1, 2, READ_WRITE)
        .on(1, 106_000, Call::Read, 2, (0, 5000))
        .close(0, 108_000, 1);
    trace
}

#[test]
fn what_another_thread_needs_is_waited_for() {
    for calls in [ReplayCalls::Recorded, ReplayCalls::IoUring] {
        let folder = Folder::new();
        let mut plan = handing_over().plan();
        make(&folder, &plan);
        let waits = [WaitFor {
            at: 0,
            thread: 0,
            count: 43,
        }];
        assert_eq!(plan.threads[1].waits, waits);
        assert!(plan.threads[0].waits.is_empty());
        for _ in 0..5 {
            let (_, ended) = replayed(&folder, &plan, Timing::FlatOut, calls);
            assert_eq!(differing(&plan, &ended), (0, None));
            tree::reset(folder.tree().to_str().unwrap(), &plan, AS_IT_WAS).unwrap();
        }
        // Without them the other thread comes too early.
        plan.threads[1].waits.clear();
        let (_, ended) = replayed(&folder, &plan, Timing::FlatOut, calls);
        assert!(ended[1].differing[Call::Open as usize] == 1);
    }
}

#[test]
fn of_several_operations_of_a_thread_the_last_is_waited_for() {
    let mut trace = Trace::new(&[file(0, "f", Some(4096))], 2);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .open(1, 2000, 0, 1, READ_WRITE)
        .on(0, 4000, Call::Write, 0, (0, 4096))
        .on(0, 6000, Call::Read, 0, (0, 4096))
        .on(1, 8000, Call::Write, 1, (0, 4096));
    let last = WaitFor {
        at: 1,
        thread: 0,
        count: 3,
    };
    assert_eq!(trace.plan().threads[1].waits, [last]);
}

#[test]
fn operations_that_overlapped_or_only_read_do_not_wait() {
    let mut trace = Trace::new(
        &[file(0, "read", Some(4096)), file(1, "written", Some(4096))],
        2,
    );
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .open(1, 2000, 0, 1, READ_WRITE)
        .on(0, 4000, Call::Read, 0, (0, 4096))
        .on(1, 6000, Call::Read, 1, (0, 4096))
        .open(0, 8000, 1, 2, READ_WRITE)
        .open(1, 10_000, 1, 3, READ_WRITE);
    let write = |thread, handle, start, duration| Op {
        handle: Some(handle),
        length: 4096,
        result: 4096,
        ..op(thread, Call::Write, start, duration)
    };
    trace
        .op(write(0, 2, 20_000, 5000))
        .op(write(1, 3, 22_000, 5000)) // it overlapped with the one before
        .op(write(0, 2, 28_000, 1000)); // it came after both
    let plan = trace.plan();
    let wait = |at, thread, count| WaitFor { at, thread, count };
    // Each first write waits for the other thread's open, but not for its write.
    assert_eq!(plan.threads[1].waits, [wait(3, 0, 3)]);
    assert_eq!(plan.threads[0].waits, [wait(3, 1, 3), wait(4, 1, 4)]);
}

#[test]
fn a_thread_begins_after_its_start_and_is_waited_for() {
    let mut trace = Trace::new(&[file(0, "a", Some(4096))], 2);
    trace.open(0, 0, 0, 0, READ_WRITE);
    trace.op(Op {
        other: Some(1),
        ..op(0, Call::Start, 2000, 500)
    });
    trace
        .open(1, 4000, 0, 1, READ_WRITE)
        .on(1, 6000, Call::Read, 1, (0, 4096));
    trace.op(op(1, Call::Exit, 8000, 0));
    trace.op(Op {
        other: Some(1),
        ..op(0, Call::Wait, 3000, 6000)
    });
    trace.close(0, 10_000, 0);
    let plan = trace.plan();
    let wait = |at, thread, count| WaitFor { at, thread, count };
    assert_eq!(plan.threads[1].waits, [wait(0, 0, 2)]);
    assert_eq!(plan.threads[0].waits, [wait(2, 1, 3)]);
    assert_eq!(plan.threads[1].born_ns, 2500);
    let folder = Folder::new();
    make(&folder, &plan);
    for timing in [Timing::Closed, Timing::FlatOut, Timing::Open] {
        let (_, ended) = replayed(&folder, &plan, timing, ReplayCalls::Recorded);
        assert_eq!(differing(&plan, &ended), (0, None));
        assert!(ended[0].end > ended[1].end);
    }
}

/// Reads with pauses of 2 ms.
fn paused() -> Plan {
    let mut trace = Trace::new(&[file(0, "a", Some(4096))], 1);
    trace.open(0, MS, 0, 0, READ_WRITE);
    for n in 1..=20 {
        let read = Op {
            positional: true,
            ..op(0, Call::Read, MS + n * 2 * MS, 1000)
        };
        trace.op(Op {
            handle: Some(0),
            length: 4096,
            result: 4096,
            ..read
        });
    }
    trace.plan()
}

#[test]
fn pauses_are_kept_or_left_out() {
    let folder = Folder::new();
    let plan = paused();
    make(&folder, &plan);
    let lasted = |timing| {
        let (begin, ended) = replayed(&folder, &plan, timing, ReplayCalls::Recorded);
        assert_eq!(differing(&plan, &ended), (0, None));
        ended[0].end - begin
    };
    // They cannot be shorter; how much longer they are depends on the machine.
    assert!(lasted(Timing::Closed) >= 41 * MS);
    assert!(lasted(Timing::Open) >= 41 * MS);
    let flat_out = (0..5).map(|_| lasted(Timing::FlatOut)).min().unwrap();
    assert!(flat_out < 41 * MS, "{flat_out}");
}

#[test]
fn with_recorded_times_no_operation_starts_early_and_what_falls_behind_is_late() {
    let folder = Folder::new();
    let plan = paused();
    make(&folder, &plan);
    let (begin, ended) = replayed(&folder, &plan, Timing::Open, ReplayCalls::Recorded);
    assert_eq!(ended[0].late.len(), 21);
    let last = MS + 20 * 2 * MS;
    assert!(ended[0].end - begin >= last);

    // 200 syncs of a megabyte each, recorded as taking a microsecond.
    let mut trace = Trace::new(&[file(0, "a", None)], 1);
    trace.open(0, 0, 0, 0, CREATE);
    for n in 0..200 {
        trace.on(0, 2000 + n * 4000, Call::Write, 0, (n << 20, 1 << 20));
        trace.on(0, 4000 + n * 4000, Call::Fsync, 0, (0, 0));
    }
    let plan = trace.plan();
    make(&folder, &plan);
    let (_, ended) = replayed(&folder, &plan, Timing::Open, ReplayCalls::Recorded);
    let most = ended[0].late.iter().map(|late| late.value()).max();
    assert!(most.unwrap() > 10 * MS);
}

#[test]
fn a_shared_position_is_not_raced_for() {
    let mut trace = Trace::new(&[file(0, "a", Some(1 << 20))], 2);
    trace.open(0, 0, 0, 0, READ_WRITE);
    for n in 0..100 {
        trace.on(
            (n % 2) as u32,
            2000 + n * 2000,
            Call::Read,
            0,
            (n * 4096, 4096),
        );
    }
    let plan = trace.plan();
    for step in plan.threads.iter().flat_map(|thread| &thread.steps) {
        let read = step.call == Call::Read;
        assert!(!step.is(bit::SEEK) && step.is(bit::POSITIONAL) == read);
    }
    let folder = Folder::new();
    make(&folder, &plan);
    assert_eq!(plain(&folder, &plan), (0, None));
}

#[test]
fn vectors_long_transfers_and_all_other_calls_work() {
    let files = [
        file(0, "a", Some(1 << 20)),
        file(1, "b", Some(0)),
        FileRecord {
            kind: FileKind::Directory,
            ..file(2, "d", Some(4096))
        },
        file(3, "hard", None),
    ];
    let mut trace = Trace::new(&files, 1);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .open(0, 2000, 1, 1, READ_WRITE)
        .open(0, 4000, 2, 2, libc::O_DIRECTORY as u32);
    let mut at = 10_000;
    let mut next = |op: Op| {
        at += 2000;
        trace.op(Op {
            start_ns: at,
            duration_ns: 100,
            ..op
        });
    };
    let on = |call, handle, offset, length, result| Op {
        handle: Some(handle),
        offset,
        length,
        result,
        positional: true,
        ..op(0, call, 0, 0)
    };
    next(Op {
        vectors: 7,
        ..on(Call::Read, 0, 0, 100_000, 100_000)
    });
    next(Op {
        vectors: 3,
        ..on(Call::Write, 1, 0, 10_000, 10_000)
    });
    // Longer than any buffer.
    next(on(Call::Write, 1, 10_000, 20 << 20, 20 << 20));
    next(on(Call::Read, 1, 0, 30 << 20, 10_000 + (20 << 20)));
    next(on(Call::SyncFileRange, 1, 0, 4096, 0));
    next(on(Call::Allocate, 1, 0, 1 << 20, 0));
    next(Op {
        flags: libc::POSIX_FADV_DONTNEED as u32,
        ..on(Call::Advise, 0, 0, 0, 0)
    });
    next(on(Call::Send, 0, 0, 4096, 4096));
    next(Op {
        other: Some(1),
        ..on(Call::Copy, 0, 0, 4096, 4096)
    });
    next(on(Call::ReadDir, 2, 0, 32_768, 48));
    next(on(Call::Stat, 0, 0, 0, 0));
    next(Op {
        file: Some(0),
        other: Some(3),
        ..op(0, Call::Link, 0, 0)
    });
    next(Op {
        file: Some(0),
        ..on(Call::Map, 0, 0, 65_536, 0)
    });
    next(Op {
        file: Some(0),
        offset: 8192,
        length: 4096,
        result: 4096,
        ..op(0, Call::Fault, 0, 0)
    });
    next(Op {
        file: Some(0),
        length: 65_536,
        ..op(0, Call::Unmap, 0, 0)
    });
    next(op(0, Call::Sync, 0, 0));
    let plan = trace.plan();
    for calls in [ReplayCalls::Recorded, ReplayCalls::IoUring] {
        let folder = Folder::new();
        make(&folder, &plan);
        let (_, ended) = replayed(&folder, &plan, Timing::FlatOut, calls);
        assert_eq!(differing(&plan, &ended), (0, None));
        assert_eq!(ended[0].bytes_written, 14_096 + (20 << 20));
        let status = fs::metadata(folder.tree().join("hard")).unwrap();
        assert_eq!(status.nlink(), 2);
    }
}

#[test]
fn parts_that_were_copied_one_after_the_other_stay_so() {
    let files = [
        file(0, "a", Some(10_000)),
        file(1, "b", Some(20_000)),
        file(2, "both", None),
    ];
    let mut trace = Trace::new(&files, 1);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .open(0, 2000, 1, 1, READ_WRITE)
        .open(0, 4000, 2, 2, CREATE);
    for (handle, length, at) in [(0, 10_000, 6000), (1, 20_000, 8000)] {
        trace.op(Op {
            handle: Some(handle),
            other: Some(2),
            length: 1 << 20,
            result: length,
            ..op(0, Call::Copy, at, 100)
        });
    }
    trace.on(0, 10_000, Call::Write, 2, (30_000, 5));
    let plan = trace.plan();
    assert_eq!(plan.facts.growth_bytes, 30_005);
    assert!(!plan.threads[0].steps[5].is(bit::SEEK));
    let folder = Folder::new();
    make(&folder, &plan);
    assert_eq!(plain(&folder, &plan), (0, None));
    let read = |name| fs::read(folder.tree().join(name)).unwrap();
    assert_eq!(read("both"), [&read("a")[..], &read("b"), &[7; 5]].concat());
}

#[test]
fn a_copy_goes_where_the_recorded_one_went() {
    let files = [file(0, "a", Some(3000)), file(1, "b", Some(8000))];
    let mut trace = Trace::new(&files, 1);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .open(0, 2000, 1, 1, READ_WRITE);
    // To a given offset, then at the position, then where a seek has gone that is not in the trace.
    for (from, to, positional) in [(0, 5000, true), (1000, 0, false), (2000, 7000, false)] {
        trace.op(Op {
            handle: Some(0),
            other: Some(1),
            offset: from,
            positional: true,
            length: 1000,
            result: 1000,
            target: Some(Target {
                offset: to,
                positional,
            }),
            ..op(0, Call::Copy, 4000 + from, 100)
        });
    }
    trace.on(0, 10_000, Call::Write, 1, (8000, 5));
    let plan = trace.plan();
    assert_eq!(plan.facts.growth_bytes, 5);
    let targets = |number: usize| plan.target(&plan.threads[0].steps[number]);
    assert_eq!(
        [2, 3, 4].map(targets),
        [Some(5000), None, Some(7000)],
        "of the copies"
    );
    assert_eq!(targets(5), None, "of the write");
    let folder = Folder::new();
    make(&folder, &plan);
    let before = fs::read(folder.tree().join("b")).unwrap();
    assert_eq!(plain(&folder, &plan), (0, None));
    let read = |name| fs::read(folder.tree().join(name)).unwrap();
    let (a, b) = (read("a"), read("b"));
    let wanted = [
        &a[1000..2000],
        &before[1000..5000],
        &a[..1000],
        &before[6000..7000],
        &a[2000..],
        &[7; 5],
    ];
    assert_eq!(b, wanted.concat());
}

#[test]
fn operations_in_flight_at_once_stay_so() {
    let mut trace = Trace::new(&[file(0, "a", Some(1 << 20))], 2);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .open(1, 2000, 0, 1, READ_WRITE);
    // Eight at a time; the other thread truncates after each group.
    for group in 0..50 {
        let at = 10_000 + group * 100_000;
        for n in 0..8 {
            trace.op(Op {
                handle: Some(0),
                uring: true,
                positional: true,
                offset: n * 4096,
                length: 4096,
                result: 4096,
                ..op(0, Call::Read, at + n, 50_000)
            });
        }
        trace.op(Op {
            handle: Some(1),
            length: 1 << 20,
            ..op(1, Call::Truncate, at + 60_000, 100)
        });
    }
    let plan = trace.plan();
    assert_eq!(plan.threads[0].in_flight, 8);
    let folder = Folder::new();
    make(&folder, &plan);
    for timing in [Timing::FlatOut, Timing::Closed] {
        let (_, ended) = replayed(&folder, &plan, timing, ReplayCalls::Recorded);
        assert_eq!(differing(&plan, &ended), (0, None));
    }
}

#[test]
fn a_plain_read_goes_on_where_the_ring_had_read() {
    let mut trace = Trace::new(&[file(0, "a", Some(10_000))], 1);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .on(0, 2000, Call::Read, 0, (0, 4000));
    trace.op(Op {
        handle: Some(0),
        uring: true,
        offset: 4000,
        length: 3000,
        result: 3000,
        ..op(0, Call::Read, 4000, 1000)
    });
    // The rest, and the end of the file.
    for (offset, result, at) in [(7000, 3000, 6000), (10_000, 0, 8000)] {
        trace.op(Op {
            handle: Some(0),
            offset,
            length: 5000,
            result,
            ..op(0, Call::Read, at, 1000)
        });
    }
    let plan = trace.plan();
    let folder = Folder::new();
    make(&folder, &plan);
    for calls in [ReplayCalls::Recorded, ReplayCalls::IoUring] {
        let (_, ended) = replayed(&folder, &plan, Timing::FlatOut, calls);
        assert_eq!(differing(&plan, &ended), (0, None));
    }
}

/// Write a trace of random operations on few files and handles by several threads, many of which
/// overlap.
fn tangled(seed: u64) -> Vec<u8> {
    let mut drawn = 0;
    let mut below = |limit: u64| {
        drawn += 1;
        word(seed, drawn) % limit
    };
    let files: Vec<FileRecord> = (0..4)
        .map(|id| file(id, &format!("f{id}"), (id < 2).then_some(20_000)))
        .collect();
    let threads = 2 + below(5) as u32;
    let mut trace = Trace::new(&files, threads);
    let (mut end_ns, mut handles) = (0, 0);
    for _ in 0..400 {
        end_ns += below(3) * 100;
        let thread = below(threads.into()) as u32;
        let calls = [
            Call::Open,
            Call::Close,
            Call::Read,
            Call::Write,
            Call::Truncate,
            Call::Unlink,
            Call::Rename,
            Call::Start,
            Call::Wait,
            Call::Stat,
        ];
        let call = calls[below(calls.len() as u64) as usize];
        let duration_ns = (below(8) * 100).min(end_ns);
        let mut one = op(thread, call, end_ns - duration_ns, duration_ns);
        one.file = Some(below(4) as u32);
        one.uring = below(4) == 0;
        one.positional = below(2) == 0;
        one.length = below(5000);
        one.offset = below(5000);
        match call {
            Call::Open => {
                one.handle = Some(handles);
                one.flags = if below(2) == 0 { CREATE } else { READ_WRITE };
                handles += 1;
            }
            Call::Close | Call::Read | Call::Write if handles > 0 => {
                one.handle = Some(below(handles.into()) as u32);
            }
            Call::Rename => one.other = Some(below(4) as u32),
            Call::Start | Call::Wait => one.other = Some(below(threads.into()) as u32),
            _ => {}
        }
        trace.op(one);
    }
    trace.bytes()
}

#[test]
fn no_tangle_of_threads_is_a_deadlock() {
    for seed in 0..300 {
        parse(&tangled(seed));
    }
    let folder = Folder::new();
    for seed in 0..20 {
        let plan = Plan::read(&tangled(seed)[..], "test").unwrap();
        make(&folder, &plan);
        for (timing, calls) in [
            (Timing::FlatOut, ReplayCalls::Recorded),
            (Timing::Closed, ReplayCalls::IoUring),
        ] {
            let (_, ended) = replayed(&folder, &plan, timing, calls);
            assert_eq!(ended.len(), plan.threads.len());
        }
    }
}

#[test]
fn a_link_that_the_replay_makes_leads_nowhere() {
    let folder = Folder::new();
    let files = [
        FileRecord {
            kind: FileKind::Link,
            ..file(0, "way", None)
        },
        file(1, "way/out", None),
    ];
    let mut trace = Trace::new(&files, 1);
    trace.op(Op {
        file: Some(0),
        ..op(0, Call::Symlink, 0, 100)
    });
    trace.open(0, 2000, 1, 0, CREATE);
    let plan = trace.plan();
    make(&folder, &plan);
    let (count, first) = plain(&folder, &plan);
    assert_eq!(count, 1);
    assert!(first.unwrap().starts_with("open way/out"));
    assert!(fs::symlink_metadata(folder.tree().join("way"))
        .unwrap()
        .is_symlink());
}

#[test]
fn more_than_there_is_room_for_is_refused() {
    let folder = Folder::new();
    let mut trace = Trace::new(&[file(0, "a", Some(1 << 50)), file(1, "b", Some(0))], 1);
    trace.open(0, 0, 0, 0, READ_WRITE);
    let error = tree::make(folder.tree().to_str().unwrap(), &trace.plan(), AS_IT_WAS);
    assert!(is_full(&error.unwrap_err()));
    let mut trace = Trace::new(&[file(0, "a", Some(0))], 1);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .on(0, 2000, Call::Allocate, 0, (0, 1 << 50));
    let error = tree::make(folder.tree().to_str().unwrap(), &trace.plan(), AS_IT_WAS);
    assert!(is_full(&error.unwrap_err()));
    assert!(!folder.tree().exists());
}

#[test]
fn what_cannot_be_replayed_is_left_out() {
    let mut trace = Trace::new(
        &[
            FileRecord {
                kind: FileKind::Other,
                ..file(0, "fifo", Some(0))
            },
            file(1, "a", Some(0)),
        ],
        1,
    );
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .on(0, 2000, Call::Read, 0, (0, 10))
        .open(0, 4000, 1, 1, READ_WRITE);
    trace.op(Op {
        handle: Some(1),
        length: 1 << 60,
        result: -i64::from(libc::ENOSPC),
        ..op(0, Call::Allocate, 6000, 100)
    });
    trace.op(op(0, Call::Read, 8000, 100)); // on nothing
    let plan = trace.plan();
    assert_eq!(plan.facts.left_out, 4);
    let folder = Folder::new();
    make(&folder, &plan);
    assert!(!folder.tree().join("fifo").exists());
    assert_eq!(plain(&folder, &plan), (0, None));
    let status = fs::metadata(folder.tree().join("a")).unwrap();
    assert!(!status.file_type().is_fifo() && status.len() == 0);
}

#[test]
fn facts_are_those_of_the_trace() {
    let files = [
        file(0, "a", Some(1 << 20)),
        file(1, "b", None),
        file(2, "c", Some(10)),
    ];
    let mut trace = Trace::new(&files, 1);
    trace
        .open(0, 0, 0, 0, READ_WRITE)
        .on(0, 2000, Call::Read, 0, (0, 5000))
        .on(0, 4000, Call::Read, 0, (0, 9000))
        .open(0, 6000, 1, 1, CREATE)
        .on(0, 8000, Call::Write, 1, (0, 70_000))
        .on(0, 9500, Call::Write, 1, (0, 70_000));
    let facts = trace.plan().facts;
    assert_eq!((facts.operations, facts.threads, facts.files), (6, 1, 2));
    assert_eq!((facts.bytes, facts.growth_bytes), ((1 << 20) + 10, 70_000));
    assert_eq!(facts.least_read_bytes, 8192);
    assert_eq!(facts.calls["read"], 2);
    assert_eq!(facts.duration_ns, 10_500);
    assert!(facts.complete);
}

#[test]
fn a_cut_off_trace_is_replayed_up_to_there() {
    let mut trace = Trace::new(&[file(0, "a", Some(10))], 1);
    trace.open(0, 0, 0, 0, READ_WRITE);
    trace.writer.flush().unwrap();
    let bytes = trace.writer.inner().clone();
    let plan = Plan::read(&bytes[..], "test").unwrap();
    assert!(!plan.facts.complete && plan.facts.operations == 1);
    let error = Plan::read(&bytes[..20], "test").unwrap_err();
    assert!(error.to_string().contains("cut off"), "{error}");
}

#[test]
fn a_trace_without_operations_is_refused() {
    let error = Plan::read(&Trace::new(&[], 1).bytes()[..], "test").unwrap_err();
    assert!(error.to_string().contains("no operations"), "{error}");
}
