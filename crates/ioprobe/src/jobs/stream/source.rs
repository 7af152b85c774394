//! The files that streams work on: opening them, evicting their cached pages, checking them.

use std::os::unix::io::OwnedFd;

use libc::c_int;

use super::verify::PIECE;
use crate::error::{Doing, Error, Result};
use crate::fileset::cache::{cached, open_any_way, page_size};
use crate::fileset::FileSet;
use crate::protocol::{StreamJob, StreamSync};
use crate::sys::{c_text, drop_pages, open, stat, stat_of, try_open, write_all};

/// One file.
pub struct Chosen {
    pub index: u32,
    /// The name that the job uses.
    pub path: String,
    /// The path of the file itself, for everything before and after the job: the name may be a
    /// link.
    pub file: String,
}

/// The files that streams work on, in the order of the selection.
pub struct Target<'a> {
    pub set: &'a mut FileSet,
    pub files: Vec<Chosen>,
    /// O_NOFOLLOW unless the names may be links.
    itself: c_int,
}

impl<'a> Target<'a> {
    /// Take the first `count` files of the selection.
    pub fn new(
        set: &'a mut FileSet,
        view: Option<&str>,
        selection: &Option<Vec<u32>>,
        count: usize,
    ) -> Result<Self> {
        let chosen = set.select_in(view, selection)?;
        if chosen.len() < count {
            return Err(Error::bad(format!(
                "request stream: files: expected {count} of set {}, found {}",
                set.dir,
                chosen.len()
            )));
        }
        let file = |index: &u32| -> Result<Chosen> {
            Ok(Chosen {
                index: *index,
                path: set.path_through(view, *index)?,
                file: set.path(*index),
            })
        };
        Ok(Target {
            files: chosen[..count].iter().map(file).collect::<Result<_>>()?,
            itself: view.map_or(libc::O_NOFOLLOW, |_| 0),
            set,
        })
    }

    pub fn size(&self, place: usize) -> u64 {
        self.set.files[self.files[place].index as usize].size
    }

    fn exists(&self, place: usize) -> bool {
        self.set.files[self.files[place].index as usize].exists
    }

    /// Open a file as dd opens its input.
    pub fn open_to_read(&self, place: usize, own: &StreamJob) -> Result<OwnedFd> {
        self.open(place, libc::O_RDONLY, own)
    }

    /// Open a file as dd opens its output.
    pub fn open_to_write(&self, place: usize, own: &StreamJob, truncate: bool) -> Result<OwnedFd> {
        let sync = match own.sync {
            StreamSync::None => 0,
            StreamSync::Sync => libc::O_SYNC,
            StreamSync::Dsync => libc::O_DSYNC,
        };
        let truncate = if truncate { libc::O_TRUNC } else { 0 };
        self.open(place, libc::O_WRONLY | libc::O_CREAT | truncate | sync, own)
    }

    fn open(&self, place: usize, flags: c_int, own: &StreamJob) -> Result<OwnedFd> {
        let direct = if own.direct { libc::O_DIRECT } else { 0 };
        let path = &self.files[place].path;
        let flags = flags | direct | self.itself;
        try_open(&c_text(path)?, flags, self.set.mode & 0o777).map_err(|errno| {
            let how = if own.direct { " past the cache" } else { "" };
            Error::errno(format!("open {path}{how}"), errno)
        })
    }

    /// Extend a file to the size that a rewrite needs, with the content of its set.
    pub fn fill_up(&mut self, place: usize, size: u64) -> Result<()> {
        let Chosen { index, file, .. } = &self.files[place];
        let before = match self.exists(place) {
            true => self.size(place),
            false => 0,
        };
        if before >= size {
            return Ok(());
        }
        let doing = |errno| Error::errno(format!("open {file}"), errno);
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_NOFOLLOW;
        let opened = try_open(&c_text(file)?, flags, self.set.mode & 0o777).map_err(doing)?;
        let mut piece = vec![0; PIECE];
        let mut offset = before;
        while offset < size {
            let length = (PIECE as u64).min(size - offset) as usize;
            (self.set.content).fill(*index, offset, &mut piece[..length]);
            write_all(&opened, &piece[..length], file)?;
            offset += length as u64;
        }
        let state = &mut self.set.files[*index as usize];
        state.exists = true;
        state.size = size;
        Ok(())
    }

    /// Write back the dirty pages of every file and drop all its pages.
    pub fn evict(&self) -> Result<()> {
        for place in (0..self.files.len()).filter(|place| self.exists(*place)) {
            let path = &self.files[place].file;
            let file = open_any_way(path)?;
            rustix::fs::fdatasync(&file).doing(|| format!("write back {path}"))?;
            drop_pages(&file, path)?;
        }
        Ok(())
    }

    /// Count the pages of the files, and how many are cached.
    pub fn start(&self) -> Result<Start> {
        let mut all = Start::default();
        for place in (0..self.files.len()).filter(|place| self.exists(*place)) {
            let path = &self.files[place].file;
            let file = open_any_way(path)?;
            let size = stat_of(&file, path)?.st_size as u64;
            let one = Start::of(&file, size, path)?;
            all.pages += one.pages;
            all.resident += one.resident;
        }
        Ok(all)
    }

    /// Update the registry to what the kernel shows, whether the work succeeded or failed.
    pub fn follow(&mut self) {
        for chosen in &self.files {
            let found = stat(&chosen.path, true);
            let state = &mut self.set.files[chosen.index as usize];
            state.exists = found.is_ok();
            if let Ok(found) = &found {
                state.size = found.st_size as u64;
            }
        }
    }
}

/// Open the device that dd reads zeros from or writes its input to.
pub fn open_dd_device(path: &str, flags: c_int) -> Result<OwnedFd> {
    open(path, flags, 0)
}

/// Pages in total and in the cache when the timed part started.
#[derive(Clone, Copy, Debug, Default)]
pub struct Start {
    pub pages: u64,
    pub resident: u64,
}

impl Start {
    pub fn of(file: &OwnedFd, size: u64, path: &str) -> Result<Self> {
        let page = page_size();
        Ok(Start {
            pages: size.div_ceil(page),
            resident: cached(file, size, path)?.0,
        })
    }
}
