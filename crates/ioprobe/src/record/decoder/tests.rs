//! Events as the kernel would write them, and the operations that come of them.

use super::*;
use crate::record::calls::*;
use crate::trace::bpf::event::Opened;
use crate::trace::bpf::recorder::uring;
use iotrace::{Header, Reader, Record};
use std::path::Path;

/// The process that is recorded; its events are not of this machine.
const MAIN: u32 = u32::MAX - 100;
const CHILD: u32 = MAIN + 1;
const HERE: u64 = libc::AT_FDCWD as u64;
const CLONE_THREAD: u64 =
    (libc::CLONE_FILES | libc::CLONE_FS | libc::CLONE_VM | libc::CLONE_THREAD) as u64;

struct Scene {
    decoder: Decoder<Vec<u8>>,
    now: u64,
}

impl Scene {
    /// A process in /data, with the names `known` there.
    fn new(known: &[(&str, u64)]) -> Self {
        let header = Header {
            version: iotrace::VERSION,
            recorded_at: String::new(),
            kernel: String::new(),
            command: vec![],
            under: "/data".into(),
            names_hashed: false,
        };
        let mut names = Names::new(b"/data", Path::new("/nowhere"));
        names.complete = true;
        for (index, (path, size)) in known.iter().enumerate() {
            let name = names.name(path.as_bytes(), || First {
                kind: FileKind::Regular,
                size: Some(*size),
                stored: *size,
            });
            names.set_inode(name, (1, 100 + index as u64));
        }
        let writer = Writer::new(Vec::new(), &header).unwrap();
        let words = UringWords {
            position: 8,
            length: 56,
            sync_flags: 24,
        };
        let mut decoder = Decoder::new(writer, names, None, Some(words));
        decoder.tasks.insert(
            MAIN,
            Task {
                process: MAIN,
                thread: None,
                descriptors: Rc::default(),
                folder: Rc::new(RefCell::new(b"/data".to_vec())),
            },
        );
        Scene { decoder, now: 0 }
    }

    fn event(&mut self, kind: Kind, thread: u32, number: u32) -> Event<'static> {
        self.now += 100;
        Event {
            kind,
            number,
            thread,
            process: thread,
            start_ns: self.now - 50,
            end_ns: self.now,
            result: 0,
            arguments: [0; 6],
            file: 0,
            position: 0,
            opened: None,
            paths: [b"", b""],
            command: &[],
        }
    }

    fn call(&mut self, thread: u32, number: u32, arguments: &[u64], result: i64) {
        let mut event = self.event(Kind::Call, thread, number);
        event.arguments[..arguments.len()].copy_from_slice(arguments);
        event.result = result;
        self.decoder.event(&event).unwrap();
    }

    fn paths(&mut self, number: u32, arguments: &[u64], result: i64, paths: [&'static str; 2]) {
        let mut event = self.event(Kind::Call, MAIN, number);
        event.arguments[..arguments.len()].copy_from_slice(arguments);
        event.result = result;
        event.paths = paths.map(str::as_bytes);
        self.decoder.event(&event).unwrap();
    }

    fn open(&mut self, path: &'static str, flags: c_int, descriptor: i64, inode: u64) {
        let mut event = self.event(Kind::Call, MAIN, OPENAT);
        event.arguments = [HERE, 0, flags as u64, 0, 0, 0];
        event.result = descriptor;
        event.paths = [path.as_bytes(), b""];
        event.file = 0x1000 + descriptor as u64;
        event.opened = Some(Opened {
            device: 1,
            inode,
            mode: libc::S_IFREG | 0o644,
            size: 0,
            stored: 0,
            created: flags & libc::O_CREAT != 0,
        });
        self.decoder.event(&event).unwrap();
    }

    fn start(&mut self, by: u32, task: u32, process: u32, flags: u64) {
        let mut event = self.event(Kind::Task, by, 0);
        event.arguments = [task.into(), process.into(), flags, 0, 0, 0];
        self.decoder.event(&event).unwrap();
    }

    fn end(&mut self, task: u32, process: u32) {
        let mut event = self.event(Kind::Exit, task, 0);
        event.process = process;
        self.decoder.event(&event).unwrap();
    }

    fn done(self) -> (Vec<FileRecord>, Vec<Op>, Counts) {
        let counts = self.decoder.counts;
        let end = iotrace::End {
            operations: self.decoder.writer.operations(),
            ..Default::default()
        };
        let bytes = self.decoder.writer.finish(end).unwrap();
        let (_, reader) = Reader::new(&bytes[..]).unwrap();
        let (mut files, mut ops) = (vec![], vec![]);
        for record in reader {
            match record.unwrap() {
                Record::File(file) => files.push(file),
                Record::Op(op) => ops.push(op),
                _ => {}
            }
        }
        (files, ops, counts)
    }
}

fn calls(ops: &[Op]) -> Vec<Call> {
    ops.iter().map(|op| op.call).collect()
}

#[test]
fn plain_reads_have_the_offset_of_their_description() {
    let mut scene = Scene::new(&[("a", 10_000)]);
    scene.open("a", libc::O_RDONLY, 3, 100);
    scene.call(MAIN, READ, &[3, 0, 4096], 4096);
    scene.call(MAIN, DUP, &[3], 4);
    scene.call(MAIN, READ, &[4, 0, 4096], 4096);
    scene.call(MAIN, LSEEK, &[3, 100, 0], 100);
    scene.call(MAIN, READ, &[3, 0, 4096], 4096);
    scene.call(MAIN, PREAD64, &[3, 0, 10, 7], 10);
    scene.call(MAIN, READ, &[3, 0, 10_000], 5804);
    scene.call(MAIN, CLOSE, &[3], 0);
    scene.call(MAIN, READ, &[4, 0, 1], 0);
    scene.call(MAIN, CLOSE, &[4], 0);
    let (files, ops, counts) = scene.done();
    assert_eq!((files.len(), files[0].size), (1, Some(10_000)));
    let reads: Vec<_> = (ops.iter().filter(|op| op.call == Call::Read))
        .map(|op| (op.offset, op.length, op.result, op.positional))
        .collect();
    assert_eq!(
        reads,
        [
            (0, 4096, 4096, false),
            (4096, 4096, 4096, false),
            (100, 4096, 4096, false),
            (7, 10, 10, true),
            (4196, 10_000, 5804, false),
            (10_000, 1, 0, false),
        ]
    );
    assert!(ops.iter().all(|op| op.handle == Some(0)));
    // Only the last descriptor closes it.
    assert_eq!(calls(&ops).last(), Some(&Call::Close));
    assert_eq!(ops.iter().filter(|op| op.call == Call::Close).count(), 1);
    assert_eq!(counts.elsewhere, 0);
}

#[test]
fn the_kernel_says_where_an_append_went() {
    let mut scene = Scene::new(&[("log", 500)]);
    scene.open("log", libc::O_WRONLY | libc::O_APPEND, 3, 100);
    let mut event = scene.event(Kind::Call, MAIN, WRITE);
    event.arguments[..3].copy_from_slice(&[3, 0, 20]);
    (event.result, event.file, event.position) = (20, 0x1003, 520);
    scene.decoder.event(&event).unwrap();
    let (_, ops, _) = scene.done();
    assert_eq!((ops[1].offset, ops[1].result), (500, 20));
}

#[test]
fn a_fork_shares_offsets_but_not_descriptors() {
    let mut scene = Scene::new(&[("a", 100), ("b", 100)]);
    scene.open("a", libc::O_RDONLY, 3, 100);
    scene.start(MAIN, CHILD, CHILD, libc::SIGCHLD as u64);
    scene.call(CHILD, READ, &[3, 0, 10], 10);
    scene.call(MAIN, READ, &[3, 0, 10], 10);
    scene.call(CHILD, CLOSE, &[3], 0);
    scene.call(MAIN, READ, &[3, 0, 10], 10);
    scene.end(CHILD, CHILD);
    scene.call(MAIN, WAIT4, &[], CHILD.into());
    scene.end(MAIN, MAIN);
    let (_, ops, _) = scene.done();
    assert_eq!(
        calls(&ops),
        [
            Call::Open,
            Call::Start,
            Call::Read,
            Call::Read,
            Call::Read,
            Call::Exit,
            Call::Wait,
            Call::Close,
            Call::Exit
        ]
    );
    let reads: Vec<_> = ops[2..5].iter().map(|op| (op.thread, op.offset)).collect();
    assert_eq!(reads, [(1, 0), (0, 10), (0, 20)]);
    assert_eq!((ops[1].other, ops[6].other), (Some(1), Some(1)));
}

#[test]
fn threads_share_descriptors_and_folders() {
    let mut scene = Scene::new(&[("x/a", 100)]);
    scene.start(MAIN, CHILD, MAIN, CLONE_THREAD);
    scene.paths(CHDIR, &[], 0, ["x", ""]);
    scene.open("a", libc::O_RDONLY, 3, 100);
    let mut event = scene.event(Kind::Call, CHILD, READ);
    event.process = MAIN;
    event.arguments[..3].copy_from_slice(&[3, 0, 10]);
    event.result = 10;
    scene.decoder.event(&event).unwrap();
    scene.end(CHILD, MAIN);
    scene.call(MAIN, READ, &[3, 0, 10], 10);
    let (files, ops, _) = scene.done();
    assert_eq!(files[0].path, b"x/a");
    let reads = ops.iter().filter(|op| op.call == Call::Read);
    let reads: Vec<_> = reads.map(|op| (op.thread, op.offset)).collect();
    assert_eq!(reads, [(1, 0), (0, 10)]);
}

#[test]
fn an_execve_closes_what_it_should() {
    let mut scene = Scene::new(&[("a", 100), ("b", 100)]);
    scene.open("a", libc::O_RDONLY | libc::O_CLOEXEC, 3, 100);
    scene.open("b", libc::O_RDONLY, 4, 101);
    scene.call(MAIN, FCNTL, &[4, libc::F_DUPFD_CLOEXEC as u64, 0], 5);
    let mut event = scene.event(Kind::Exec, MAIN, 0);
    event.arguments[0] = MAIN.into();
    scene.decoder.event(&event).unwrap();
    scene.call(MAIN, READ, &[3, 0, 10], -9);
    scene.call(MAIN, READ, &[4, 0, 10], 10);
    let (_, ops, counts) = scene.done();
    assert_eq!(
        calls(&ops),
        [Call::Open, Call::Open, Call::Close, Call::Read]
    );
    assert_eq!((ops[2].file, ops[3].file), (Some(0), Some(1)));
    assert_eq!(counts.elsewhere, 1);
}

#[test]
fn a_close_that_returns_late_does_not_close_the_number_s_next_file() {
    let mut scene = Scene::new(&[("a", 100), ("b", 100)]);
    scene.open("a", libc::O_RDONLY, 3, 100);
    let mut close = scene.event(Kind::Call, MAIN, CLOSE);
    close.arguments[0] = 3;
    close.file = 0x1003;
    // Another thread gets the number before the close returns.
    let mut open = scene.event(Kind::Call, MAIN, OPENAT);
    open.arguments = [HERE, 0, 0, 0, 0, 0];
    (open.result, open.file) = (3, 0x2000);
    open.paths = [b"b", b""];
    open.opened = Some(Opened {
        device: 1,
        inode: 101,
        mode: libc::S_IFREG,
        size: 100,
        stored: 0,
        created: false,
    });
    scene.decoder.event(&open).unwrap();
    scene.decoder.event(&close).unwrap();
    scene.call(MAIN, READ, &[3, 0, 10], 10);
    let (_, ops, _) = scene.done();
    assert_eq!(ops.last().unwrap().file, Some(1));
    assert_eq!(
        calls(&ops),
        [Call::Open, Call::Close, Call::Open, Call::Read]
    );
}

#[test]
fn a_close_range_closes_all_within() {
    let mut scene = Scene::new(&[("a", 1), ("b", 1), ("c", 1)]);
    scene.open("a", libc::O_RDONLY, 3, 100);
    scene.open("b", libc::O_RDONLY, 4, 101);
    scene.open("c", libc::O_RDONLY, 5, 102);
    scene.call(MAIN, CLOSE_RANGE, &[4, u32::MAX.into(), 0], 0);
    let (_, ops, _) = scene.done();
    let closed = ops.iter().filter(|op| op.call == Call::Close);
    assert_eq!(
        closed.map(|op| op.file).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
}

#[test]
fn what_did_not_exist_has_no_size_and_what_was_truncated_its_old_one() {
    let mut scene = Scene::new(&[("old", 700)]);
    scene.open("new", libc::O_RDWR | libc::O_CREAT, 3, 500);
    scene.open("old", libc::O_WRONLY | libc::O_TRUNC, 4, 100);
    scene.paths(STAT, &[], -2, ["missing", ""]);
    let (files, ops, counts) = scene.done();
    let found: Vec<_> = files
        .iter()
        .map(|file| (&file.path[..], file.size))
        .collect();
    assert_eq!(
        found,
        [(&b"new"[..], None), (b"old", Some(700)), (b"missing", None)]
    );
    assert_eq!((ops[2].call, ops[2].result), (Call::Stat, -2));
    assert_eq!(counts.guessed, 0);
}

#[test]
fn a_renamed_file_is_found_by_its_new_name_and_by_its_inode() {
    let mut scene = Scene::new(&[("a", 10), ("d/x", 20)]);
    let folder = scene.decoder.names.name(b"d", || First {
        kind: FileKind::Directory,
        size: Some(0),
        stored: 0,
    });
    scene.decoder.names.set_inode(folder, (1, 99));
    scene.paths(RENAME, &[], 0, ["a", "b"]);
    scene.paths(RENAME, &[], 0, ["d", "e"]);
    let mut fault = scene.event(Kind::Fault, MAIN, 0);
    fault.arguments[..3].copy_from_slice(&[1, 100, 2]);
    scene.decoder.event(&fault).unwrap();
    scene.open("e/x", libc::O_RDONLY, 3, 101);
    let (files, ops, _) = scene.done();
    let path = |id: Option<u32>| &files[id.unwrap() as usize].path[..];
    assert_eq!(
        (path(ops[0].file), path(ops[0].other)),
        (&b"a"[..], &b"b"[..])
    );
    assert_eq!(
        (path(ops[1].file), path(ops[1].other)),
        (&b"d"[..], &b"e"[..])
    );
    // Under its old name it was there before the start.
    let moved = files.iter().find(|file| file.path == b"d/x").unwrap();
    assert_eq!(moved.size, Some(20));
    assert_eq!(path(ops[2].file), b"b");
    assert_eq!((ops[2].offset, ops[2].length), (8192, 4096));
    assert_eq!(path(ops[3].file), b"e/x");
    assert_eq!(files[ops[3].file.unwrap() as usize].size, None);
}

#[test]
fn paths_through_links_and_dots_lead_to_the_file() {
    let mut scene = Scene::new(&[("real/a", 10)]);
    scene.decoder.names.link(b"link", b"real");
    scene.decoder.names.link(b"up", b"/data/real/../link/a");
    for (path, number) in [
        ("link/a", STAT),
        ("./x/../real//a", STAT),
        ("up", STAT),
        ("up", LSTAT),
        ("/data/link/a", STAT),
        ("../data/real/a", STAT),
    ] {
        scene.paths(number, &[], -2, [path, ""]);
    }
    scene.paths(STAT, &[], 0, ["../elsewhere", ""]);
    scene.paths(STAT, &[], 0, ["/database", ""]);
    let (files, ops, counts) = scene.done();
    let found: Vec<_> = (ops.iter())
        .map(|op| String::from_utf8_lossy(&files[op.file.unwrap() as usize].path).into_owned())
        .collect();
    assert_eq!(
        found,
        ["real/a", "real/a", "real/a", "up", "real/a", "real/a"]
    );
    assert_eq!(counts.elsewhere, 2);
}

#[test]
fn an_open_through_an_unknown_link_is_known_by_its_inode() {
    let mut scene = Scene::new(&[("a", 10)]);
    scene.open("/proc/self/fd/../x/a", libc::O_RDONLY, 3, 100);
    let (files, ops, _) = scene.done();
    assert_eq!(files[ops[0].file.unwrap() as usize].path, b"a");
}

#[test]
fn copies_have_both_files_and_sends_one() {
    let mut scene = Scene::new(&[("a", 10_000), ("b", 0)]);
    scene.open("a", libc::O_RDONLY, 3, 100);
    scene.open("b", libc::O_WRONLY, 4, 101);
    let none = u64::MAX;
    // Offsets that were pointed to are those after the call.
    scene.call(MAIN, COPY_FILE_RANGE, &[3, 1500, 4, none, 1000, 0], 1000);
    scene.call(MAIN, COPY_FILE_RANGE, &[3, none, 4, none, 1000, 0], 1000);
    scene.call(MAIN, COPY_FILE_RANGE, &[3, none, 4, 8000, 1000, 0], 1000);
    scene.call(MAIN, SENDFILE, &[9, 3, none, 100], 100);
    scene.call(MAIN, SPLICE, &[8, none, 4, none, 50, 0], 50);
    let (_, ops, _) = scene.done();
    let seen: Vec<_> = (ops[2..].iter())
        .map(|op| {
            (
                op.call,
                op.file,
                op.other,
                op.offset,
                op.positional,
                op.result,
            )
        })
        .collect();
    let at = |op: &Op| op.target.map(|target| (target.offset, target.positional));
    assert_eq!(
        ops[2..].iter().map(at).collect::<Vec<_>>(),
        [
            Some((0, false)),
            Some((1000, false)),
            Some((7000, true)),
            None,
            None
        ]
    );
    assert_eq!(
        seen,
        [
            (Call::Copy, Some(0), Some(1), 500, true, 1000),
            (Call::Copy, Some(0), Some(1), 0, false, 1000),
            (Call::Copy, Some(0), Some(1), 1000, false, 1000),
            (Call::Send, Some(0), None, 2000, false, 100),
            (Call::Write, Some(1), None, 2000, false, 50),
        ]
    );
}

#[test]
fn vectors_have_their_sum_and_count() {
    let mut scene = Scene::new(&[("a", 100)]);
    scene.open("a", libc::O_RDWR, 3, 100);
    scene.call(MAIN, WRITEV, &[3, 300, 3], 300);
    scene.call(MAIN, PREADV, &[3, u64::MAX, 20, 50], 40);
    scene.call(MAIN, PWRITEV2, &[3, 10, 2, u64::MAX, u64::MAX, 0], 10);
    let (_, ops, _) = scene.done();
    let seen: Vec<_> = (ops[1..].iter())
        .map(|op| (op.vectors, op.offset, op.length, op.positional))
        .collect();
    assert_eq!(
        seen,
        [(3, 0, 300, false), (20, 50, 40, true), (2, 300, 10, false)]
    );
}

#[test]
fn requests_of_io_uring_have_their_own_offsets() {
    let mut scene = Scene::new(&[("a", 100)]);
    scene.open("a", libc::O_RDWR, 3, 100);
    let mut words = [0_u8; 64];
    words[8..16].copy_from_slice(&8192_u64.to_le_bytes());
    words[56..60].copy_from_slice(&4096_u32.to_le_bytes());
    let words = Box::leak(Box::new(words));
    let mut event = scene.event(Kind::Uring, MAIN, uring::WRITE);
    event.arguments[0] = 3;
    (event.file, event.result, event.command) = (0x1003, 4096, words);
    scene.decoder.event(&event).unwrap();
    // A registered file is known by the kernel's open file alone.
    event.arguments[..2].copy_from_slice(&[0, 1]);
    event.number = uring::READ_FIXED;
    scene.decoder.event(&event).unwrap();
    event.number = uring::FSYNC;
    event.result = 0;
    scene.decoder.event(&event).unwrap();
    let (_, ops, _) = scene.done();
    assert_eq!(
        calls(&ops),
        [Call::Open, Call::Write, Call::Read, Call::Fsync]
    );
    assert!(ops[1..].iter().all(|op| op.uring && op.handle == Some(0)));
    assert_eq!(
        (ops[1].offset, ops[1].length, ops[1].positional),
        (8192, 4096, true)
    );
}

#[test]
fn what_ended_before_the_recording_is_not_in_it() {
    let mut scene = Scene::new(&[("a", 100)]);
    scene.now = 1000;
    scene.decoder.begin(1175, None);
    scene.open("a", libc::O_RDONLY, 3, 100); // ends at 1100
    scene.call(MAIN, FSYNC, &[3], 0); // from 1150 to 1200
    let (_, ops, counts) = scene.done();
    assert_eq!((ops.len(), counts.elsewhere), (0, 1));
}

#[test]
fn events_that_are_cut_off_are_refused() {
    let mut whole = [0_u8; 168];
    whole[0] = 5;
    assert!(Event::parse(&whole).is_some());
    for length in 0..whole.len() {
        assert!(Event::parse(&whole[..length]).is_none(), "{length}");
    }
    // Lengths of paths are not believed.
    let mut call = [0_u8; 160];
    call[140] = 8;
    assert!(Event::parse(&call).is_some());
    call[140] = 9;
    assert!(Event::parse(&call).is_none());
    call[0] = 9;
    assert!(Event::parse(&call).is_none());
}
