//! Enumerations whose members are words on the wire.

use serde_json::Value;

use super::json::words;
use super::FromJson;

words! {
    /// In which order a modelled disk serves what waits.
    QueueOrder {
        Arrival = "arrival",
        Elevator = "elevator",
        Nearest = "nearest",
    }
    /// How an image gets its blocks.
    Fill {
        Allocate = "allocate",
        Write = "write",
    }
    /// What the files of a set hold.
    Content {
        Text = "text",
        Random = "random",
        Zeros = "zeros",
        Words = "words",
        C = "c",
    }
    /// What relatime will do at the next read.
    AtimeState {
        Stale = "stale",
        Fresh = "fresh",
        DayOld = "day-old",
    }
    LinkKind {
        Regular = "regular",
        SymlinkAbsolute = "symlink-absolute",
        SymlinkRelative = "symlink-relative",
        SymlinkChain = "symlink-chain",
        Hardlink = "hardlink",
    }
    /// What a server is asked to end by; each gives these another meaning.
    EndSignal {
        Term = "TERM",
        Int = "INT",
        Quit = "QUIT",
    }
    /// Which time of a job the positive control stretches.
    StretchClock {
        Wall = "wall",
        Cpu = "cpu",
    }
    Order {
        File = "by-file",
        Operation = "by-operation",
        Phase = "by-phase",
    }
    /// How the `random` job reaches the kernel.
    Engine {
        Psync = "psync",
        Mmap = "mmap",
        IoUring = "io_uring",
    }
    /// In which order the `random` job visits blocks.
    Access {
        Random = "random",
        Sequential = "sequential",
    }
    Operation {
        Open = "open",
        OpenWrite = "open-write",
        OpenTruncate = "open-truncate",
        Create = "create",
        Read = "read",
        ReadToEnd = "read-to-end",
        Sendfile = "sendfile",
        WriteByte = "write-byte",
        WriteAll = "write-all",
        Fsync = "fsync",
        Close = "close",
        Stat = "stat",
        Fstat = "fstat",
        Lstat = "lstat",
        Readlink = "readlink",
        Unlink = "unlink",
        Getdents = "getdents",
    }

    /// What a redirect is: a failure, or a response like any other. It is never followed.
    Redirects {
        Refuse = "refuse",
        Count = "count",
    }

    StreamOperation {
        Read = "read",
        Write = "write",
        Rewrite = "rewrite",
        Copy = "copy",
    }
    /// How a copy inside a file system is made.
    CopyWith {
        ReadWrite = "read-write",
        CopyFileRange = "copy-file-range",
    }
    /// What goes on in an array while it is rebuilt.
    RebuildLoad {
        None = "none",
        Read = "read",
        Write = "write",
    }
    /// O_SYNC or O_DSYNC: whether every write waits for the disk.
    StreamSync {
        None = "none",
        Sync = "sync",
        Dsync = "dsync",
    }
    /// What follows the last write of a stream.
    StreamFlush {
        None = "none",
        Fsync = "fsync",
        Fdatasync = "fdatasync",
    }

    /// The tests of the matrix in their order.
    MatrixTest {
        Write = "write",
        Rewrite = "rewrite",
        Read = "read",
        Reread = "reread",
        RandomRead = "random-read",
        RandomWrite = "random-write",
        BackwardRead = "backward-read",
        RecordRewrite = "record-rewrite",
        StrideRead = "stride-read",
        Fwrite = "fwrite",
        Frewrite = "frewrite",
        Fread = "fread",
        Freread = "freread",
    }

    /// System calls that the `atime` job does once each, and what they are done to.
    AtimeCall {
        Read = "read",
        ReadNothing = "read-nothing",
        ReadAtEnd = "read-at-end",
        ReadNoatime = "read-noatime",
        ReadDirect = "read-direct",
        Pread = "pread",
        Readv = "readv",
        Preadv2 = "preadv2",
        AioRead = "aio-read",
        IoUringRead = "io-uring-read",
        Mmap = "mmap",
        MmapPopulate = "mmap-populate",
        MappedRead = "mapped-read",
        MappedWrite = "mapped-write",
        Sendfile = "sendfile",
        Splice = "splice",
        CopyFileRange = "copy-file-range",
        CopyFileRangeTo = "copy-file-range-to",
        Clone = "clone",
        CloneTo = "clone-to",
        Execve = "execve",
        Open = "open",
        OpenPath = "open-path",
        OpenWrite = "open-write",
        OpenTruncate = "open-truncate",
        OpenByHandle = "open-by-handle",
        NameToHandle = "name-to-handle",
        Stat = "stat",
        Access = "access",
        Getxattr = "getxattr",
        Listxattr = "listxattr",
        Setxattr = "setxattr",
        FadviseWillneed = "fadvise-willneed",
        FadviseDontneed = "fadvise-dontneed",
        Readahead = "readahead",
        MadviseWillneed = "madvise-willneed",
        Mincore = "mincore",
        LseekData = "lseek-data",
        Fiemap = "fiemap",
        Flock = "flock",
        Fsync = "fsync",
        Write = "write",
        WriteNothing = "write-nothing",
        TruncateSame = "truncate-same",
        FtruncateSame = "ftruncate-same",
        TruncateShorter = "truncate-shorter",
        Fallocate = "fallocate",
        Link = "link",
        Unlink = "unlink",
        Rename = "rename",
        Chmod = "chmod",
        Chown = "chown",
        UtimensatMtime = "utimensat-mtime",
        Getdents = "getdents",
        OpenFolder = "open-folder",
        StatInside = "stat-inside",
        OpenInside = "open-inside",
        CreateInside = "create-inside",
        RenameInside = "rename-inside",
        Readlink = "readlink",
        Lstat = "lstat",
        StatThrough = "stat-through",
        OpenThrough = "open-through",
    }
}
