//! The system calls that are recorded, by number.

use crate::trace::arch::{self, older};
use crate::trace::bpf::recorder::Form;

pub const READ: u32 = libc::SYS_read as u32;
pub const WRITE: u32 = libc::SYS_write as u32;
pub const OPEN: u32 = older::OPEN as u32;
pub const CLOSE: u32 = libc::SYS_close as u32;
pub const STAT: u32 = older::STAT as u32;
pub const FSTAT: u32 = libc::SYS_fstat as u32;
pub const LSTAT: u32 = older::LSTAT as u32;
pub const LSEEK: u32 = libc::SYS_lseek as u32;
pub const MMAP: u32 = libc::SYS_mmap as u32;
pub const IOCTL: u32 = libc::SYS_ioctl as u32;
pub const PREAD64: u32 = libc::SYS_pread64 as u32;
pub const PWRITE64: u32 = libc::SYS_pwrite64 as u32;
pub const READV: u32 = libc::SYS_readv as u32;
pub const WRITEV: u32 = libc::SYS_writev as u32;
pub const ACCESS: u32 = older::ACCESS as u32;
pub const DUP: u32 = libc::SYS_dup as u32;
pub const DUP2: u32 = older::DUP2 as u32;
pub const SENDFILE: u32 = arch::SENDFILE as u32;
pub const WAIT4: u32 = libc::SYS_wait4 as u32;
pub const FCNTL: u32 = libc::SYS_fcntl as u32;
pub const FSYNC: u32 = libc::SYS_fsync as u32;
pub const FDATASYNC: u32 = libc::SYS_fdatasync as u32;
pub const TRUNCATE: u32 = libc::SYS_truncate as u32;
pub const FTRUNCATE: u32 = libc::SYS_ftruncate as u32;
pub const GETDENTS: u32 = older::GETDENTS as u32;
pub const CHDIR: u32 = libc::SYS_chdir as u32;
pub const FCHDIR: u32 = libc::SYS_fchdir as u32;
pub const RENAME: u32 = older::RENAME as u32;
pub const MKDIR: u32 = older::MKDIR as u32;
pub const RMDIR: u32 = older::RMDIR as u32;
pub const CREAT: u32 = older::CREAT as u32;
pub const LINK: u32 = older::LINK as u32;
pub const UNLINK: u32 = older::UNLINK as u32;
pub const SYMLINK: u32 = older::SYMLINK as u32;
pub const SYNC: u32 = libc::SYS_sync as u32;
pub const IO_GETEVENTS: u32 = libc::SYS_io_getevents as u32;
pub const IO_SUBMIT: u32 = libc::SYS_io_submit as u32;
pub const GETDENTS64: u32 = libc::SYS_getdents64 as u32;
pub const FADVISE64: u32 = arch::FADVISE64 as u32;
pub const WAITID: u32 = libc::SYS_waitid as u32;
pub const OPENAT: u32 = libc::SYS_openat as u32;
pub const MKDIRAT: u32 = libc::SYS_mkdirat as u32;
pub const NEWFSTATAT: u32 = libc::SYS_newfstatat as u32;
pub const UNLINKAT: u32 = libc::SYS_unlinkat as u32;
pub const RENAMEAT: u32 = libc::SYS_renameat as u32;
pub const LINKAT: u32 = libc::SYS_linkat as u32;
pub const SYMLINKAT: u32 = libc::SYS_symlinkat as u32;
pub const FACCESSAT: u32 = libc::SYS_faccessat as u32;
pub const SPLICE: u32 = libc::SYS_splice as u32;
pub const SYNC_FILE_RANGE: u32 = libc::SYS_sync_file_range as u32;
pub const FALLOCATE: u32 = libc::SYS_fallocate as u32;
pub const DUP3: u32 = libc::SYS_dup3 as u32;
pub const PREADV: u32 = libc::SYS_preadv as u32;
pub const PWRITEV: u32 = libc::SYS_pwritev as u32;
pub const SYNCFS: u32 = libc::SYS_syncfs as u32;
pub const RENAMEAT2: u32 = libc::SYS_renameat2 as u32;
pub const COPY_FILE_RANGE: u32 = libc::SYS_copy_file_range as u32;
pub const PREADV2: u32 = libc::SYS_preadv2 as u32;
pub const PWRITEV2: u32 = libc::SYS_pwritev2 as u32;
pub const STATX: u32 = libc::SYS_statx as u32;
pub const IO_PGETEVENTS: u32 = arch::IO_PGETEVENTS as u32;
pub const CLOSE_RANGE: u32 = libc::SYS_close_range as u32;
pub const OPENAT2: u32 = libc::SYS_openat2 as u32;
pub const FACCESSAT2: u32 = libc::SYS_faccessat2 as u32;

/// How each call is recorded. Arguments are counted from 1. Numbers that no call has are those of calls that this
/// processor's kernel lacks.
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
