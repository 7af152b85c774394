//! The system calls that are recorded, by their numbers on x86-64 (arch/x86/entry/syscalls).

use crate::trace::bpf::recorder::Form;

pub const READ: u32 = 0;
pub const WRITE: u32 = 1;
pub const OPEN: u32 = 2;
pub const CLOSE: u32 = 3;
pub const STAT: u32 = 4;
pub const FSTAT: u32 = 5;
pub const LSTAT: u32 = 6;
pub const LSEEK: u32 = 8;
pub const MMAP: u32 = 9;
pub const IOCTL: u32 = 16;
pub const PREAD64: u32 = 17;
pub const PWRITE64: u32 = 18;
pub const READV: u32 = 19;
pub const WRITEV: u32 = 20;
pub const ACCESS: u32 = 21;
pub const DUP: u32 = 32;
pub const DUP2: u32 = 33;
pub const SENDFILE: u32 = 40;
pub const WAIT4: u32 = 61;
pub const FCNTL: u32 = 72;
pub const FSYNC: u32 = 74;
pub const FDATASYNC: u32 = 75;
pub const TRUNCATE: u32 = 76;
pub const FTRUNCATE: u32 = 77;
pub const GETDENTS: u32 = 78;
pub const CHDIR: u32 = 80;
pub const FCHDIR: u32 = 81;
pub const RENAME: u32 = 82;
pub const MKDIR: u32 = 83;
pub const RMDIR: u32 = 84;
pub const CREAT: u32 = 85;
pub const LINK: u32 = 86;
pub const UNLINK: u32 = 87;
pub const SYMLINK: u32 = 88;
pub const SYNC: u32 = 162;
pub const IO_GETEVENTS: u32 = 208;
pub const IO_SUBMIT: u32 = 209;
pub const GETDENTS64: u32 = 217;
pub const FADVISE64: u32 = 221;
pub const WAITID: u32 = 247;
pub const OPENAT: u32 = 257;
pub const MKDIRAT: u32 = 258;
pub const NEWFSTATAT: u32 = 262;
pub const UNLINKAT: u32 = 263;
pub const RENAMEAT: u32 = 264;
pub const LINKAT: u32 = 265;
pub const SYMLINKAT: u32 = 266;
pub const FACCESSAT: u32 = 269;
pub const SPLICE: u32 = 275;
pub const SYNC_FILE_RANGE: u32 = 277;
pub const FALLOCATE: u32 = 285;
pub const DUP3: u32 = 292;
pub const PREADV: u32 = 295;
pub const PWRITEV: u32 = 296;
pub const SYNCFS: u32 = 306;
pub const RENAMEAT2: u32 = 316;
pub const COPY_FILE_RANGE: u32 = 326;
pub const PREADV2: u32 = 327;
pub const PWRITEV2: u32 = 328;
pub const STATX: u32 = 332;
pub const IO_PGETEVENTS: u32 = 333;
pub const CLOSE_RANGE: u32 = 436;
pub const OPENAT2: u32 = 437;
pub const FACCESSAT2: u32 = 439;

/// How each call is recorded. Arguments are counted from 1.
pub const FORMS: [(u32, Form); 64] = [
    (READ, Form::MOVING),
    (WRITE, Form::MOVING),
    (OPEN, Form::open(1)),
    (CLOSE, Form::CLOSE),
    (STAT, Form::path(1)),
    (FSTAT, Form::file(1)),
    (LSTAT, Form::path(1)),
    (LSEEK, Form::file(1)),
    (MMAP, Form::MMAP),
    (IOCTL, Form::IOCTL),
    (PREAD64, Form::file(1)),
    (PWRITE64, Form::file(1)),
    (READV, Form::VECTOR),
    (WRITEV, Form::VECTOR),
    (ACCESS, Form::path(1)),
    (DUP, Form::file(1)),
    (DUP2, Form::file(1)),
    (SENDFILE, Form::offsets(2, 3, 0)),
    (WAIT4, Form::PLAIN),
    (FCNTL, Form::FCNTL),
    (FSYNC, Form::file(1)),
    (FDATASYNC, Form::file(1)),
    (TRUNCATE, Form::path(1)),
    (FTRUNCATE, Form::file(1)),
    (GETDENTS, Form::file(1)),
    (CHDIR, Form::path(1)),
    (FCHDIR, Form::file(1)),
    (RENAME, Form::paths(1, 2)),
    (MKDIR, Form::path(1)),
    (RMDIR, Form::path(1)),
    (CREAT, Form::open(1)),
    (LINK, Form::paths(1, 2)),
    (UNLINK, Form::path(1)),
    (SYMLINK, Form::paths(1, 2)),
    (SYNC, Form::PLAIN),
    (IO_GETEVENTS, Form::REAP),
    (IO_SUBMIT, Form::SUBMIT),
    (GETDENTS64, Form::file(1)),
    (FADVISE64, Form::file(1)),
    (WAITID, Form::PLAIN),
    (OPENAT, Form::open(2)),
    (MKDIRAT, Form::path(2)),
    (NEWFSTATAT, Form::path_at(1, 2)),
    (UNLINKAT, Form::path(2)),
    (RENAMEAT, Form::paths(2, 4)),
    (LINKAT, Form::paths(2, 4)),
    (SYMLINKAT, Form::paths(1, 3)),
    (FACCESSAT, Form::path(2)),
    (SPLICE, Form::offsets(1, 2, 4)),
    (SYNC_FILE_RANGE, Form::file(1)),
    (FALLOCATE, Form::file(1)),
    (DUP3, Form::file(1)),
    (PREADV, Form::VECTOR),
    (PWRITEV, Form::VECTOR),
    (SYNCFS, Form::file(1)),
    (RENAMEAT2, Form::paths(2, 4)),
    (COPY_FILE_RANGE, Form::offsets(1, 2, 4)),
    (PREADV2, Form::VECTOR),
    (PWRITEV2, Form::VECTOR),
    (STATX, Form::path_at(1, 2)),
    (IO_PGETEVENTS, Form::REAP),
    (CLOSE_RANGE, Form::PLAIN),
    (OPENAT2, Form::OPENAT2),
    (FACCESSAT2, Form::path(2)),
];
