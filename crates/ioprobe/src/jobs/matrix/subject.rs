//! The one file of a matrix: created, dropped from the cache, checked and removed, all of it
//! untimed.

use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::unix::io::OwnedFd;

use libc::c_int;

use super::pattern::{put_stamp, Held, Pattern};
use crate::error::{Doing, Error, Result};
use crate::fileset::cache;
use crate::sys::{c_text, drop_pages, open_quietly, read_full, stat, stat_of, try_open, write_all};

/// Name of the file in the folder of the set.
const NAME: &str = "matrix";
/// Number of attempts to drop pages that the kernel still holds on to.
const TRIES: u32 = 5;

pub struct Subject {
    pub path: String,
    c_path: CString,
    mode: u32,
    made: bool,
}

impl Subject {
    /// Set up for a file in this folder. If a file of that name exists already it is not ours: an
    /// error.
    pub fn new(folder: &str, mode: u32) -> Result<Self> {
        let path = format!("{folder}/{NAME}");
        match stat(&path, false) {
            Err(Error::Os {
                errno: libc::ENOENT,
                ..
            }) => Ok(Subject {
                c_path: c_text(&path)?,
                path,
                mode,
                made: false,
            }),
            Err(other) => Err(other),
            Ok(_) => Err(Error::errno(format!("create {path}"), libc::EEXIST)),
        }
    }

    /// Open the file for one test, with these flags.
    pub fn open(&mut self, flags: c_int) -> Result<OwnedFd> {
        let opened = try_open(&self.c_path, flags | libc::O_NOFOLLOW, self.mode);
        let file = opened.map_err(|errno| Error::errno(format!("open {}", self.path), errno))?;
        self.made = true;
        Ok(file)
    }

    /// Note that a test is about to create the file by its name.
    pub fn will_be_made(&mut self) {
        self.made = true;
    }

    /// Remove the file, if it was created, so that a test can write a new one.
    pub fn remove(&mut self) -> Result<()> {
        if !self.made {
            return Ok(());
        }
        match rustix::fs::unlink(&self.c_path) {
            Ok(()) | Err(Errno::NOENT) => self.made = false,
            failed => failed.doing(|| format!("unlink {}", self.path))?,
        }
        Ok(())
    }

    pub fn exists(&self) -> bool {
        self.made
    }

    /// Write the whole file through the page cache and sync it, for tests that expect a file.
    pub fn prepare(&mut self, pattern: Pattern, records: u32, buffer: &mut [u8]) -> Result<()> {
        let file = self.open(libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY)?;
        pattern.fill(buffer);
        for record in 0..records {
            put_stamp(buffer, pattern.stamp(record));
            write_all(&file, buffer, &self.path)?;
        }
        self.sync(&file)
    }

    pub fn sync(&self, file: &OwnedFd) -> Result<()> {
        rustix::fs::fsync(file).doing(|| format!("fsync {}", self.path))?;
        Ok(())
    }

    /// Sync what a test left unsynced when it closed the file.
    pub fn sync_by_name(&self) -> Result<()> {
        self.sync(&open_quietly(&self.path)?)
    }

    /// Drop the file's pages from the cache, and verify that none is left.
    pub fn make_cold(&self) -> Result<()> {
        let file = open_quietly(&self.path)?;
        self.sync(&file)?;
        let size = stat_of(&file, &self.path)?.st_size as u64;
        let mut left = 0;
        for _ in 0..TRIES {
            drop_pages(&file, &self.path)?;
            left = cache::cached(&file, size, &self.path)?.0;
            if left == 0 {
                return Ok(());
            }
        }
        Err(Error::verify(format!(
            "drop the page cache of {}: {left} pages are still cached",
            self.path
        )))
    }

    pub fn check_size(&self, wanted: u64) -> Result<()> {
        let found = stat(&self.path, false)?.st_size as u64;
        if found == wanted {
            return Ok(());
        }
        Err(Error::verify(format!(
            "{}: expected size {wanted}, found {found}",
            self.path
        )))
    }

    /// Read the whole file and check each record against what the tests have left.
    pub fn check_content(&self, held: &Held, records: u32, record_size: usize) -> Result<()> {
        let file = open_quietly(&self.path)?;
        let size = stat_of(&file, &self.path)?.st_size as u64;
        if size != u64::from(records) * record_size as u64 {
            return self.check_size(u64::from(records) * record_size as u64);
        }
        let mut wanted = vec![0; record_size];
        let mut found = vec![0; record_size];
        held.first.fill(&mut wanted);
        for record in 0..records {
            if record == 1 {
                held.all.fill(&mut wanted);
            }
            put_stamp(&mut wanted, held.stamp(record));
            let n = read_full(&file, &mut found, &self.path)?;
            if n != record_size || found != wanted {
                return Err(Error::verify(format!(
                    "{}: record {record} differs from what the tests wrote",
                    self.path
                )));
            }
        }
        Ok(())
    }

    pub fn c_path(&self) -> &CStr {
        &self.c_path
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if self.made {
            let _ = rustix::fs::unlink(&self.c_path);
        }
    }
}
