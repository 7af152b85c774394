//! What a call is done to: a file, a folder or a symbolic link of its own, with what the call needs besides.

use std::ffi::CString;
use std::os::unix::io::{AsRawFd, OwnedFd, RawFd};

use libc::c_int;

use crate::error::{last_errno, Doing, Error, Result};
use crate::protocol::AtimeCall;
use crate::sys::{
    c_text, make_folder, memory_file, new_descriptor, open, stat, try_open, write_all,
};

pub const PAGE: usize = 4096;
/// Enough that both times of a call reach pages of their own.
pub const SIZE: usize = 4 * PAGE;
const XATTR: &[u8] = b"user.iotrial\0";
/// Whatever starts it, it does nothing and ends well.
const SCRIPT: &[u8] = b"#!/bin/true\n";

/// One object and the descriptors that its call works on, opened before the access time is set.
pub struct Object {
    pub call: AtimeCall,
    pub path: String,
    pub name: CString,
    /// A second name: of a copy, a further link, the file that a link leads to, a name inside a folder.
    pub beside: CString,
    pub file: Option<OwnedFd>,
    /// Where what is read goes to, or comes from.
    pub other: Option<OwnedFd>,
    pub ends: Option<(OwnedFd, OwnedFd)>,
    pub mapping: Option<Mapping>,
    pub handle: Handle,
    unprepared: Option<i32>,
}

#[derive(PartialEq)]
enum Kind {
    File,
    Folder,
    Link,
}

impl Object {
    /// Makes it in this folder.
    pub fn make(folder: &str, name: &str, call: AtimeCall) -> Result<Self> {
        let path = format!("{folder}/{name}");
        let beside = match kind_of(call) {
            Kind::Folder => format!("{path}/inside"),
            _ => format!("{path}.beside"),
        };
        let object = Object {
            call,
            name: c_text(&path)?,
            beside: c_text(&beside)?,
            path,
            file: None,
            other: None,
            ends: None,
            mapping: None,
            handle: Handle::default(),
            unprepared: None,
        };
        match kind_of(call) {
            Kind::File => make_file(&object.path, content_of(call))?,
            Kind::Folder => {
                make_folder(&object.path, 0o755)?;
                make_file(&beside, b"inside")?;
            }
            Kind::Link => {
                make_file(&beside, b"beside")?;
                rustix::fs::symlink(&object.beside, &object.name)
                    .doing(|| format!("link {}", object.path))?;
            }
        }
        match call {
            AtimeCall::CopyFileRangeTo | AtimeCall::CloneTo => {
                make_file(&beside, content_of(call))?
            }
            AtimeCall::CopyFileRange | AtimeCall::Clone => make_file(&beside, b"")?,
            AtimeCall::Unlink => {
                for round in 0..2 {
                    object.link(round)?;
                }
            }
            AtimeCall::Getxattr => object.set_attribute()?,
            _ => {}
        }
        Ok(object)
    }

    pub fn is_file(&self) -> bool {
        kind_of(self.call) == Kind::File
    }

    /// Access time in seconds and nanoseconds, of a link its own. Asking changes nothing.
    pub fn atime(&self) -> Result<(i64, i64)> {
        let found = stat(&self.path, false)?;
        Ok((found.st_atime, found.st_atime_nsec as i64))
    }

    /// Opens and maps what the call needs. Where that fails, so does the call.
    pub fn prepare(&mut self) {
        self.unprepared = self.try_prepare().err();
    }

    /// Does the call, for the first or for the second time; the errno where the kernel refuses.
    pub fn perform(&mut self, round: usize) -> std::result::Result<(), i32> {
        match self.unprepared {
            Some(errno) => Err(errno),
            None if kind_of(self.call) == Kind::File => self.perform_on_file(round),
            None => self.perform_on_name(round),
        }
    }

    pub fn fd(&self) -> RawFd {
        self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    pub fn other_fd(&self) -> RawFd {
        self.other.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// The name of the object's further link number `round`.
    pub fn further(&self, round: usize) -> CString {
        let path = format!("{}.{round}", self.path);
        c_text(&path).expect("a path without NUL has none with a number after it")
    }

    fn link(&self, round: usize) -> Result<()> {
        rustix::fs::link(&self.name, self.further(round))
            .doing(|| format!("link {}", self.path))?;
        Ok(())
    }

    /// A file system without extended attributes refuses the call too.
    fn set_attribute(&self) -> Result<()> {
        // SAFETY: texts end with NUL, and the value is ours.
        unsafe { libc::setxattr(self.name.as_ptr(), attribute(), b"1".as_ptr().cast(), 1, 0) };
        Ok(())
    }

    fn try_prepare(&mut self) -> std::result::Result<(), i32> {
        use AtimeCall::*;
        let flags = match self.call {
            Read | ReadNothing | ReadAtEnd | Pread | Readv | Preadv2 | AioRead | IoUringRead
            | Mmap | MmapPopulate | MappedRead | Sendfile | Splice | CopyFileRange | Clone
            | FadviseWillneed | FadviseDontneed | Readahead | MadviseWillneed | Mincore
            | LseekData | Fiemap | Flock | Fsync => libc::O_RDONLY,
            ReadNoatime => libc::O_RDONLY | libc::O_NOATIME,
            ReadDirect => libc::O_RDONLY | libc::O_DIRECT,
            MappedWrite | CopyFileRangeTo | CloneTo | Write | WriteNothing | FtruncateSame
            | Fallocate => libc::O_RDWR,
            Getdents => libc::O_RDONLY | libc::O_DIRECTORY,
            _ => return self.prepare_without(),
        };
        self.file = Some(try_open(&self.name, flags | libc::O_NOFOLLOW, 0)?);
        match self.call {
            Sendfile => self.other = Some(memory_file(in_memory()).map_err(number_of)?),
            CopyFileRange | Clone => {
                self.other = Some(try_open(&self.beside, libc::O_WRONLY, 0)?);
            }
            CopyFileRangeTo | CloneTo => {
                // Without a trace, so that nothing but the object is changed.
                self.other = Some(try_open(&self.beside, libc::O_RDONLY | libc::O_NOATIME, 0)?);
            }
            Splice => self.ends = Some(pipe()?),
            MappedRead | MadviseWillneed | Mincore => {
                self.mapping = Some(Mapping::of(self.fd(), libc::PROT_READ, 0)?);
            }
            MappedWrite => {
                let access = libc::PROT_READ | libc::PROT_WRITE;
                self.mapping = Some(Mapping::of(self.fd(), access, 0)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn prepare_without(&mut self) -> std::result::Result<(), i32> {
        if self.call == AtimeCall::OpenByHandle {
            self.handle.ask(&self.name)?;
            self.other = Some(try_open(&self.name, libc::O_RDONLY, 0)?);
        }
        Ok(())
    }
}

fn kind_of(call: AtimeCall) -> Kind {
    use AtimeCall::*;
    match call {
        Getdents | OpenFolder | StatInside | OpenInside | CreateInside | RenameInside => {
            Kind::Folder
        }
        Readlink | Lstat | StatThrough | OpenThrough => Kind::Link,
        _ => Kind::File,
    }
}

fn content_of(call: AtimeCall) -> &'static [u8] {
    match call {
        AtimeCall::Execve => SCRIPT,
        _ => &[b'a'; SIZE],
    }
}

fn make_file(path: &str, content: &[u8]) -> Result<()> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW;
    let file = open(path, flags, 0o755)?;
    write_all(&file, content, path)
}

fn pipe() -> std::result::Result<(OwnedFd, OwnedFd), i32> {
    let mut ends = [-1; 2];
    // SAFETY: there is room for two descriptors, which are new and ours.
    unsafe {
        match libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) {
            -1 => Err(last_errno()),
            _ => Ok((
                new_descriptor(ends[0].into())?,
                new_descriptor(ends[1].into())?,
            )),
        }
    }
}

fn number_of(error: Error) -> i32 {
    match error {
        Error::Os { errno, .. } => errno,
        _ => libc::EIO,
    }
}

/// The name of the extended attribute, as the kernel takes it.
pub fn attribute() -> *const libc::c_char {
    XATTR.as_ptr().cast()
}

fn in_memory() -> &'static std::ffi::CStr {
    c"atime"
}

/// A file in memory, the whole of it.
pub struct Mapping(*mut u8);

impl Mapping {
    pub fn of(fd: RawFd, access: c_int, flags: c_int) -> std::result::Result<Self, i32> {
        let flags = libc::MAP_SHARED | flags;
        // SAFETY: a new mapping wherever the kernel likes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), SIZE, access, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Mapping(start.cast()))
    }

    pub fn page(&self, number: usize) -> *mut u8 {
        assert!(number < SIZE / PAGE);
        // SAFETY: within the mapping.
        unsafe { self.0.add(number * PAGE) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::munmap(self.0.cast(), SIZE) };
    }
}

/// What name_to_handle_at(2) gives: how long, of which kind, and the bytes.
#[repr(C)]
pub struct Handle {
    bytes: u32,
    kind: c_int,
    held: [u8; Handle::LARGEST],
}

impl Handle {
    const LARGEST: usize = 128;

    pub fn ask(&mut self, name: &CString) -> std::result::Result<(), i32> {
        let mut mount: c_int = 0;
        self.bytes = Handle::LARGEST as u32;
        let itself: *mut Handle = self;
        // SAFETY: the structure is as the kernel knows it, with room for so many bytes.
        let result = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                libc::AT_FDCWD,
                name.as_ptr(),
                itself,
                &mut mount as *mut c_int,
                0,
            )
        };
        super::perform::done(result)
    }
}

impl Default for Handle {
    fn default() -> Self {
        Handle {
            bytes: 0,
            kind: 0,
            held: [0; Handle::LARGEST],
        }
    }
}
