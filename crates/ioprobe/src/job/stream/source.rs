//! What a stream works on: one file of a set, or the lab's own block device. Opened, emptied of cached pages, looked at.

use std::os::unix::io::{AsRawFd, OwnedFd};

use libc::c_int;

use crate::error::{Error, Result};
use crate::fileset::cache::{cached, drop_pages, open_any_way, page_size};
use crate::fileset::FileSet;
use crate::syscall::{c_text, stat_of, try_open};
use crate::target::device::Device;
use crate::target::loop_device::LoopDevice;
use crate::wire::{StreamJob, StreamOperation, StreamSync};

/// A device of the lab's: attached by this probe, or claimed by it. There is no way to name another.
pub enum LabDevice<'a> {
    Loop(&'a LoopDevice),
    Disk(&'a Device),
}

impl LabDevice<'_> {
    pub fn open(&self, direct: bool) -> Result<OwnedFd> {
        // As hdparm opens it.
        let flags = libc::O_NONBLOCK | if direct { libc::O_DIRECT } else { 0 };
        match self {
            LabDevice::Loop(device) => device.reading(flags),
            LabDevice::Disk(device) => device.reading_again(flags),
        }
    }

    pub fn evict(&self) -> Result<()> {
        match self {
            LabDevice::Loop(device) => device.evict(),
            LabDevice::Disk(device) => device.evict(),
        }
    }

    pub fn size(&self, opened: &OwnedFd) -> Result<u64> {
        // SAFETY: no pointers are involved.
        let end = unsafe {
            let end = libc::lseek(opened.as_raw_fd(), 0, libc::SEEK_END);
            libc::lseek(opened.as_raw_fd(), 0, libc::SEEK_SET);
            end
        };
        if end < 0 {
            return Err(Error::last_os("ask the size of the lab's device"));
        }
        Ok(end as u64)
    }
}

/// The one file that is streamed.
pub struct Target<'a> {
    pub set: &'a mut FileSet,
    pub index: u32,
    /// The name by which the job reaches it.
    pub path: String,
    /// Where the file itself is, for all that is done before and after: a name may be a link.
    pub file: String,
    /// O_NOFOLLOW where the name is no link by right.
    itself: c_int,
}

impl<'a> Target<'a> {
    pub fn new(
        set: &'a mut FileSet,
        view: Option<&str>,
        selection: &Option<Vec<u32>>,
    ) -> Result<Self> {
        let chosen = set.select_in(view, selection)?;
        let index = match chosen[..] {
            [index] => index,
            _ => {
                return Err(Error::bad(format!(
                    "request stream: files: wanted one file of {}, found {}",
                    set.dir,
                    chosen.len()
                )))
            }
        };
        Ok(Target {
            path: set.path_through(view, index)?,
            file: set.path(index),
            itself: view.map_or(libc::O_NOFOLLOW, |_| 0),
            index,
            set,
        })
    }

    /// With the flags that dd would open it with.
    pub fn open(&self, own: &StreamJob) -> Result<OwnedFd> {
        let direct = if own.direct { libc::O_DIRECT } else { 0 };
        let sync = match own.sync {
            StreamSync::None => 0,
            StreamSync::Sync => libc::O_SYNC,
            StreamSync::Dsync => libc::O_DSYNC,
        };
        let flags = match own.operation {
            StreamOperation::Read => libc::O_RDONLY,
            StreamOperation::Write if own.truncate => {
                libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC
            }
            StreamOperation::Write => libc::O_WRONLY | libc::O_CREAT,
        };
        let flags = flags | direct | sync | self.itself;
        try_open(&c_text(&self.path)?, flags, self.set.mode & 0o777).map_err(|errno| {
            let how = if own.direct { " past the cache" } else { "" };
            Error::errno(format!("open {}{how}", self.path), errno)
        })
    }

    /// Writes its dirty pages back and drops all of them.
    pub fn evict(&self) -> Result<()> {
        if !self.set.files[self.index as usize].exists {
            return Ok(());
        }
        let file = open_any_way(&self.file)?;
        // SAFETY: no pointers are involved.
        if unsafe { libc::fdatasync(file.as_raw_fd()) } != 0 {
            return Err(Error::last_os(format!("write back {}", self.file)));
        }
        drop_pages(&file, &self.file)
    }

    /// Its pages, and how many of them are cached.
    pub fn start(&self) -> Result<Start> {
        if !self.set.files[self.index as usize].exists {
            return Ok(Start::default());
        }
        let file = open_any_way(&self.file)?;
        let size = stat_of(&file, &self.file)?.st_size as u64;
        Start::of(&file, size, &self.file)
    }
}

/// What was cached when the timed part began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    pub pages: u64,
    pub resident: u64,
}

impl Start {
    pub fn of(file: &OwnedFd, size: u64, path: &str) -> Result<Self> {
        let page = page_size();
        Ok(Start {
            pages: (size + page - 1) / page,
            resident: cached(file, size, path)?.0,
        })
    }
}
