//! The records of a trace.

/// What stands before all records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u16,
    /// RFC 3339.
    pub recorded_at: String,
    /// As `uname -r` prints it.
    pub kernel: String,
    /// Empty if a running process was recorded.
    pub command: Vec<String>,
    /// The folder that was recorded, only to be shown.
    pub under: String,
    /// The names in paths are hashes.
    pub names_hashed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    Regular,
    Directory,
    Link,
    Other,
}

impl FileKind {
    pub(crate) const ALL: [FileKind; 4] = [
        FileKind::Regular,
        FileKind::Directory,
        FileKind::Link,
        FileKind::Other,
    ];
}

/// A file under the recorded folder, as it was when it was first seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Dense, from 0.
    pub id: u32,
    /// Relative to the recorded folder, without `.` and `..`. Empty for the folder itself.
    pub path: Vec<u8>,
    pub kind: FileKind,
    /// Bytes before the first operation. `None`: the file did not exist.
    pub size: Option<u64>,
    /// Bytes that were allocated, from which holes are recreated.
    pub stored: u64,
    pub extents: u32,
    /// Byte of the device at which its content began. 0: not known, or not on the disk yet.
    pub position: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadRecord {
    /// Dense, from 0.
    pub id: u32,
    /// Dense, from 0, but not in order of first use.
    pub process: u32,
    /// A thread with a lower number, if it was recorded.
    pub started_by: Option<u32>,
    pub name: String,
}

/// What an operation does. The numbers are those in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Call {
    Open,
    Close,
    Read,
    Write,
    Fsync,
    Fdatasync,
    SyncFileRange,
    /// `sync` or `syncfs`.
    Sync,
    /// `truncate` or `ftruncate`; the new size is the length.
    Truncate,
    /// From `file` to `other`.
    Rename,
    /// A second name, `other`, for `file`.
    Link,
    /// `file` is the link.
    Symlink,
    Unlink,
    Mkdir,
    Rmdir,
    Stat,
    ReadDir,
    /// `fallocate`; the mode is in the flags.
    Allocate,
    /// `posix_fadvise`; the advice is in the flags.
    Advise,
    /// From a file to something that is none: `sendfile` or `splice`.
    Send,
    /// `copy_file_range`, from `file` to `other`; the offset is that in `file`, and `target` that in
    /// `other`.
    Copy,
    /// `mmap`; the protection is in the flags.
    Map,
    /// A page of a mapping was read from the file.
    Fault,
    Unmap,
    /// Waited for the thread `other` to end.
    Wait,
    /// Started the thread `other`.
    Start,
    Exit,
}

impl Call {
    pub const ALL: [Call; 27] = [
        Call::Open,
        Call::Close,
        Call::Read,
        Call::Write,
        Call::Fsync,
        Call::Fdatasync,
        Call::SyncFileRange,
        Call::Sync,
        Call::Truncate,
        Call::Rename,
        Call::Link,
        Call::Symlink,
        Call::Unlink,
        Call::Mkdir,
        Call::Rmdir,
        Call::Stat,
        Call::ReadDir,
        Call::Allocate,
        Call::Advise,
        Call::Send,
        Call::Copy,
        Call::Map,
        Call::Fault,
        Call::Unmap,
        Call::Wait,
        Call::Start,
        Call::Exit,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Call::Open => "open",
            Call::Close => "close",
            Call::Read => "read",
            Call::Write => "write",
            Call::Fsync => "fsync",
            Call::Fdatasync => "fdatasync",
            Call::SyncFileRange => "sync_file_range",
            Call::Sync => "sync",
            Call::Truncate => "truncate",
            Call::Rename => "rename",
            Call::Link => "link",
            Call::Symlink => "symlink",
            Call::Unlink => "unlink",
            Call::Mkdir => "mkdir",
            Call::Rmdir => "rmdir",
            Call::Stat => "stat",
            Call::ReadDir => "readdir",
            Call::Allocate => "allocate",
            Call::Advise => "advise",
            Call::Send => "send",
            Call::Copy => "copy",
            Call::Map => "map",
            Call::Fault => "fault",
            Call::Unmap => "unmap",
            Call::Wait => "wait",
            Call::Start => "start",
            Call::Exit => "exit",
        }
    }

    /// Return whether `other` is a thread, not a file.
    pub fn concerns_thread(self) -> bool {
        matches!(self, Call::Wait | Call::Start)
    }
}

/// Where a copy wrote, also if the caller gave no offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub offset: u64,
    /// The caller gave the offset.
    pub positional: bool,
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Op {
    pub thread: u32,
    pub call: Call,
    /// The caller gave the offset, as with `pread`.
    pub positional: bool,
    /// The number of buffers; 1 for a call without a vector of them.
    pub vectors: u16,
    pub uring: bool,
    pub file: Option<u32>,
    /// A second file: the target of a rename or link, the destination of a copy. A thread with
    /// `Wait` and `Start`.
    pub other: Option<u32>,
    /// The open file description. Dense, in the order of first use.
    pub handle: Option<u32>,
    /// Where it read or wrote, also if the caller gave no offset.
    pub offset: u64,
    /// Bytes requested.
    pub length: u64,
    /// Bytes, or 0, or a negative error number.
    pub result: i64,
    /// Flags of an open, as on x86-64; mode of an allocation, advice. A copy has none.
    pub flags: u32,
    /// Where a copy wrote. None of any other call.
    pub target: Option<Target>,
    /// Since the start of the recording.
    pub start_ns: u64,
    pub duration_ns: u64,
}

impl Op {
    /// Return when it ended. The sum fits: the reader and the writer check it.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.duration_ns)
    }
}

/// The last record of a complete trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// In this trace.
    pub operations: u64,
    /// Not recorded for want of room.
    pub lost: u64,
    /// On files outside the recorded folder: counted, not stored.
    pub elsewhere: u64,
    pub duration_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    File(FileRecord),
    Thread(ThreadRecord),
    Op(Op),
    End(End),
}

/// The first byte of a record. That of an operation is `OPERATION` and the number of its call.
pub(crate) mod tag {
    pub const FILE: u8 = 0;
    pub const THREAD: u8 = 1;
    pub const END: u8 = 2;
    pub const OPERATION: u8 = 0x80;
}

/// What stands in place of the flags of a copy. An offset follows all but the first.
pub(crate) mod target {
    pub const UNKNOWN: u32 = 0;
    pub const AT_POSITION: u32 = 1;
    pub const POSITIONAL: u32 = 2;
}

/// Bits of an operation's second byte.
pub(crate) mod bit {
    pub const POSITIONAL: u8 = 1;
    pub const URING: u8 = 1 << 1;
    pub const FILE: u8 = 1 << 2;
    pub const OTHER: u8 = 1 << 3;
    pub const HANDLE: u8 = 1 << 4;
    /// The number of buffers is not 1, and follows.
    pub const VECTORS: u8 = 1 << 5;
    /// The offset is not where the thread's operation before it ended, and follows.
    pub const OFFSET: u8 = 1 << 6;
    /// The result is not the length, and follows.
    pub const RESULT: u8 = 1 << 7;
}
