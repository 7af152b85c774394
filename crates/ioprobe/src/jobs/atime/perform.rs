//! The calls on files, each in as few system calls as it takes.

use std::os::unix::io::{AsRawFd, RawFd};
use std::process::{Command, Stdio};
use std::ptr;

use io_uring::{opcode, types, IoUring};
use libc::{c_int, c_long};

use super::object::{attribute, Mapping, Object, PAGE, SIZE};
use crate::error::last_errno;
use crate::protocol::AtimeCall::*;
use crate::sys::{new_descriptor, try_open};

type Done = std::result::Result<(), i32>;

const FICLONE: libc::c_ulong = 0x4004_9409;
const FS_IOC_FIEMAP: libc::c_ulong = 0xc020_660b;
/// Not even one byte is asked for by it: how many extents there are.
#[repr(C)]
#[derive(Default)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    room: u32,
    reserved: u32,
}

impl Object {
    pub(super) fn perform_on_file(&mut self, round: usize) -> Done {
        let fd = self.fd();
        let offset = (round * PAGE) as i64;
        let mut room = Room([0; PAGE]);
        let buffer: *mut libc::c_void = room.0.as_mut_ptr().cast();
        let parts = [libc::iovec {
            iov_base: buffer,
            iov_len: PAGE,
        }];
        // SAFETY: every pointer is to what is ours and as large as is said; every name ends with NUL.
        unsafe {
            match self.call {
                Read | ReadNoatime | ReadDirect => done(libc::read(fd, buffer, PAGE) as c_long),
                ReadNothing => done(libc::read(fd, buffer, 0) as c_long),
                ReadAtEnd => {
                    done(libc::lseek(fd, 0, libc::SEEK_END))?;
                    done(libc::read(fd, buffer, PAGE) as c_long)
                }
                Pread => done(libc::pread(fd, buffer, PAGE, offset) as c_long),
                Readv => done(libc::readv(fd, parts.as_ptr(), 1) as c_long),
                Preadv2 => done(libc::syscall(
                    libc::SYS_preadv2,
                    fd,
                    parts.as_ptr(),
                    1,
                    offset,
                    0,
                    0,
                )),
                AioRead => read(fd, buffer, PAGE, offset),
                IoUringRead => read_by_ring(fd, buffer, offset),
                Mmap => Mapping::of(fd, libc::PROT_READ, 0).map(drop),
                MmapPopulate => Mapping::of(fd, libc::PROT_READ, libc::MAP_POPULATE).map(drop),
                MappedRead => {
                    ptr::read_volatile(self.mapped(round));
                    Ok(())
                }
                MappedWrite => {
                    ptr::write_volatile(self.mapped(round), b'b');
                    Ok(())
                }
                Sendfile => {
                    done(libc::sendfile(self.other_fd(), fd, ptr::null_mut(), PAGE) as c_long)
                }
                Splice => {
                    let into = self.ends.as_ref().map_or(-1, |ends| ends.1.as_raw_fd());
                    let nowhere = ptr::null_mut();
                    done(libc::splice(fd, nowhere, into, nowhere, PAGE, 0) as c_long)
                }
                CopyFileRange | CopyFileRangeTo => {
                    let to_it = self.call == CopyFileRangeTo;
                    let (from, to) = if to_it {
                        (self.other_fd(), fd)
                    } else {
                        (fd, self.other_fd())
                    };
                    let here = ptr::null_mut::<i64>();
                    let copy = libc::SYS_copy_file_range;
                    done(libc::syscall(copy, from, here, to, here, PAGE, 0))
                }
                Clone => done(libc::ioctl(self.other_fd(), FICLONE as _, fd).into()),
                CloneTo => done(libc::ioctl(fd, FICLONE as _, self.other_fd()).into()),
                FadviseWillneed => advised(fd, libc::POSIX_FADV_WILLNEED),
                FadviseDontneed => advised(fd, libc::POSIX_FADV_DONTNEED),
                Readahead => done(libc::readahead(fd, 0, SIZE) as c_long),
                MadviseWillneed => {
                    done(libc::madvise(self.mapped(0).cast(), SIZE, libc::MADV_WILLNEED).into())
                }
                Mincore => {
                    let mut there = [0_u8; SIZE / PAGE];
                    done(libc::mincore(self.mapped(0).cast(), SIZE, there.as_mut_ptr()).into())
                }
                LseekData => done(libc::lseek(fd, 0, libc::SEEK_DATA)),
                Fiemap => {
                    let mut asked = self::Fiemap {
                        length: u64::MAX,
                        ..Default::default()
                    };
                    let asked: *mut self::Fiemap = &mut asked;
                    done(libc::ioctl(fd, FS_IOC_FIEMAP as _, asked).into())
                }
                Flock => {
                    done(libc::flock(fd, libc::LOCK_SH).into())?;
                    done(libc::flock(fd, libc::LOCK_UN).into())
                }
                Fsync => done(libc::fsync(fd).into()),
                Write => done(libc::write(fd, buffer, PAGE) as c_long),
                WriteNothing => done(libc::write(fd, buffer, 0) as c_long),
                FtruncateSame => done(libc::ftruncate(fd, SIZE as i64).into()),
                Fallocate => done(libc::fallocate(fd, 0, 0, (SIZE * 2) as i64).into()),
                OpenByHandle => {
                    let open = libc::SYS_open_by_handle_at;
                    let handle: *mut super::object::Handle = &mut self.handle;
                    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
                    new_descriptor(libc::syscall(open, self.other_fd(), handle, flags)).map(drop)
                }
                _ => self.perform_by_name(round),
            }
        }
    }

    /// SAFETY: as above.
    unsafe fn perform_by_name(&mut self, round: usize) -> Done {
        let name = self.name.as_ptr();
        let mut room = [0_u8; PAGE];
        let buffer: *mut libc::c_void = room.as_mut_ptr().cast();
        match self.call {
            Execve => started(&self.path),
            Open => self.opened(libc::O_RDONLY),
            OpenPath => self.opened(libc::O_PATH),
            OpenWrite => self.opened(libc::O_WRONLY),
            OpenTruncate => self.opened(libc::O_WRONLY | libc::O_TRUNC),
            NameToHandle => self.handle.ask(&self.name),
            Stat => {
                let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
                done(libc::stat(name, status.as_mut_ptr()).into())
            }
            Access => done(libc::access(name, libc::R_OK).into()),
            Getxattr => done(libc::getxattr(name, attribute(), buffer, PAGE) as c_long),
            Listxattr => done(libc::listxattr(name, buffer.cast(), PAGE) as c_long),
            Setxattr => done(libc::setxattr(name, attribute(), buffer, round + 1, 0).into()),
            TruncateSame => done(libc::truncate(name, SIZE as i64).into()),
            TruncateShorter => {
                done(libc::truncate(name, (SIZE - PAGE * (round + 1)) as i64).into())
            }
            Link => done(libc::link(name, self.further(round).as_ptr()).into()),
            Unlink => done(libc::unlink(self.further(round).as_ptr()).into()),
            Rename => {
                let new = self.further(round);
                done(libc::rename(name, new.as_ptr()).into())?;
                self.path = format!("{}.{round}", self.path);
                self.name = new;
                Ok(())
            }
            Chmod => done(libc::chmod(name, 0o700 + round as u32).into()),
            Chown => done(libc::chown(name, 0, 0).into()),
            UtimensatMtime => {
                let times = [
                    libc::timespec {
                        tv_sec: 0,
                        tv_nsec: libc::UTIME_OMIT,
                    },
                    libc::timespec {
                        tv_sec: 1_000_000_000,
                        tv_nsec: 0,
                    },
                ];
                done(libc::utimensat(libc::AT_FDCWD, name, times.as_ptr(), 0).into())
            }
            _ => Err(libc::ENOSYS),
        }
    }

    pub(super) fn opened(&self, flags: c_int) -> Done {
        try_open(&self.name, flags, 0).map(drop)
    }

    /// A page of the mapping that was made before, another one each time.
    fn mapped(&self, number: usize) -> *mut u8 {
        let mapping = self.mapping.as_ref();
        mapping.map_or(ptr::null_mut(), |mapping| mapping.page(number))
    }
}

/// Where direct reads go to.
#[repr(align(4096))]
struct Room([u8; PAGE]);

/// The errno where a system call has returned -1.
pub fn done(result: c_long) -> Done {
    match result {
        -1 => Err(last_errno()),
        _ => Ok(()),
    }
}

fn advised(fd: RawFd, advice: c_int) -> Done {
    // SAFETY: no pointers are involved.
    match unsafe { libc::posix_fadvise(fd, 0, 0, advice) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

fn started(path: &str) -> Done {
    let ended = Command::new(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match ended {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(libc::EIO),
        Err(cause) => Err(cause.raw_os_error().unwrap_or(libc::EIO)),
    }
}

fn read_by_ring(fd: RawFd, buffer: *mut libc::c_void, offset: i64) -> Done {
    let failed = |cause: std::io::Error| cause.raw_os_error().unwrap_or(libc::EIO);
    let mut ring = IoUring::new(2).map_err(failed)?;
    let read = opcode::Read::new(types::Fd(fd), buffer.cast(), PAGE as u32)
        .offset(offset as u64)
        .build();
    // SAFETY: the buffer is a page, and the read has ended when this returns.
    if unsafe { ring.submission().push(&read) }.is_err() {
        return Err(libc::EBUSY);
    }
    ring.submit_and_wait(1).map_err(failed)?;
    let result = ring
        .completion()
        .next()
        .map_or(-libc::EIO, |completion| completion.result());
    if result < 0 {
        Err(-result)
    } else {
        Ok(())
    }
}

// The calls on folders and on symbolic links, whose own access time is looked at.

impl Object {
    pub(super) fn perform_on_name(&mut self, round: usize) -> Result<(), i32> {
        let mut room = [0_u8; PAGE];
        let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
        let (name, inside) = (self.name.as_ptr(), self.beside.as_ptr());
        // SAFETY: every pointer is to what is ours and as large as is said; every name ends with NUL.
        unsafe {
            match self.call {
                Getdents => {
                    done(libc::lseek(self.fd(), 0, libc::SEEK_SET))?;
                    let into = room.as_mut_ptr();
                    done(libc::syscall(libc::SYS_getdents64, self.fd(), into, PAGE))
                }
                OpenFolder => self.opened(libc::O_RDONLY | libc::O_DIRECTORY),
                StatInside => done(libc::stat(inside, status.as_mut_ptr()).into()),
                OpenInside => try_open(&self.beside, libc::O_RDONLY, 0).map(drop),
                CreateInside => {
                    let new = self.within(round);
                    try_open(&new, libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL, 0o600).map(drop)
                }
                RenameInside => {
                    let new = self.within(round);
                    done(libc::rename(inside, new.as_ptr()).into())?;
                    self.beside = new;
                    Ok(())
                }
                Readlink => done(libc::readlink(name, room.as_mut_ptr().cast(), PAGE) as _),
                Lstat => done(libc::lstat(name, status.as_mut_ptr()).into()),
                StatThrough => done(libc::stat(name, status.as_mut_ptr()).into()),
                OpenThrough => self.opened(libc::O_RDONLY),
                _ => Err(libc::ENOSYS),
            }
        }
    }

    /// A name in the folder that is not there yet.
    fn within(&self, round: usize) -> std::ffi::CString {
        let path = format!("{}/new.{round}", self.path);
        crate::sys::c_text(&path).expect("a path without NUL has none with a name after it")
    }
}

// One read by the kernel's older asynchronous interface: <linux/aio_abi.h>, which the C library has no door to.

const PREAD: u16 = 0;

#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    /// key and flags, whose order is that of the machine's bytes; both are 0
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

pub fn read(fd: RawFd, buffer: *mut libc::c_void, bytes: usize, offset: i64) -> Result<(), i32> {
    let mut context: libc::c_ulong = 0;
    let mut request = Request {
        opcode: PREAD,
        file: fd as u32,
        buffer: buffer as u64,
        bytes: bytes as u64,
        offset,
        ..Request::default()
    };
    let mut event = Event::default();
    // SAFETY: the structures are as the kernel knows them, and live until the read is done; no limit of time.
    unsafe {
        done(libc::syscall(
            libc::SYS_io_setup,
            1,
            &mut context as *mut libc::c_ulong,
        ))?;
        let requests = [&mut request as *mut Request];
        let outcome = done(libc::syscall(
            libc::SYS_io_submit,
            context,
            1,
            requests.as_ptr(),
        ))
        .and_then(|()| {
            let into = &mut event as *mut Event;
            let forever = ptr::null::<libc::timespec>();
            done(libc::syscall(
                libc::SYS_io_getevents,
                context,
                1,
                1,
                into,
                forever,
            ))
        });
        libc::syscall(libc::SYS_io_destroy, context);
        outcome?;
    }
    match event.result {
        n if n < 0 => Err(-n as i32),
        _ => Ok(()),
    }
}
