//! Enumerations whose members are words on the wire.

use serde_json::Value;

use super::json::words;
use super::FromJson;

words! {
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
    /// Which time of a job the positive control stretches.
    StretchClock {
        Wall = "wall",
        Cpu = "cpu",
    }
    /// Whether and how system calls are counted.
    Accounting {
        No = "no",
        Auto = "auto",
        Bpf = "bpf",
        Perf = "perf",
    }
    Order {
        ByFile = "by-file",
        ByOperation = "by-operation",
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
        WriteByte = "write-byte",
        Fsync = "fsync",
        Close = "close",
        Stat = "stat",
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
}
