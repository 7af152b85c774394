//! The files of a replay: made in a folder of the lab as they were before the recording, and made
//! again if a replay has changed them.
//!
//! Contents are random bytes. A file of which less was stored than its size says gets holes: the
//! recording has only the number of extents, so the stored parts are spread evenly. Files are made
//! in the order in which they were on their disk: an arm moves as far between them as it did. Names
//! are resolved below the folder only, and never through a link.

use std::collections::HashSet;
use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use iotrace::FileKind;
use rustix::fs::{
    ftruncate, mkdirat, openat2, statvfs, symlinkat, unlinkat, AtFlags, Mode, OFlags,
};
use rustix::io::Errno;

use super::plan::{FileFacts, Plan};
use super::work::LINK_TARGET;
use crate::content::{Content, Kind};
use crate::error::{Doing, Error, Result};
use crate::fileset::create::give_at;
use crate::fileset::extents;
use crate::fileset::layout::{is_btrfs, order, past_the_cache, take, write_at};
use crate::identity::User;
use crate::sys::files::syncfs;
use crate::sys::{hold_parent, open_at, remove, stat, ResolveFlags};

const BLOCK: u64 = 4096;
const PIECE: usize = 1 << 20;
/// Room for a name and an inode.
const BYTES_PER_FILE: u64 = 4096;
const CONTENT: Content = Content {
    kind: Kind::Random,
    seed: 1,
};
/// More parts would take too long, with the same effect.
const MOST_PARTS: u64 = 1 << 20;
/// Parts of a file: pairs of offset and length.
type Parts = Vec<(u64, u64)>;

/// How a tree is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub fragments: bool,
    pub owner: Option<User>,
}

/// What was done.
#[derive(Debug, Default, serde::Serialize)]
pub struct Done {
    /// Files and folders that were made, or made again.
    pub made: u64,
    /// Of the files laid out in fragments: how many were wanted, and how many they have.
    pub extents_wanted: u64,
    pub extents_found: u64,
}

/// Make the whole tree. What is in its place is removed.
pub fn make(folder: &str, plan: &Plan, wanted: Wanted) -> Result<Done> {
    remove::tree(folder)?;
    let doing = format!("make the folder {folder} of a replay");
    let (parent, name) = hold_parent(folder, &doing)?;
    let facts = &plan.facts;
    let bytes = (facts.stored_bytes)
        .saturating_add(facts.files.saturating_mul(BYTES_PER_FILE))
        .saturating_add(facts.growth_bytes);
    check_room(folder, bytes)?;
    mkdirat(&parent, &name, Mode::from_bits_retain(0o755)).doing(|| doing.clone())?;
    give_at(&parent, &name, wanted.owner, folder)?;
    let mut maker = Maker::of(folder, plan, wanted)?;
    let mut all: Vec<u32> = (0..plan.files.len() as u32).collect();
    maker.make_folders(&all)?;
    // A file system puts files roughly one behind the other as they are made. Folders and files
    // without a known position come first.
    all.sort_by_key(|number| plan.files[*number as usize].position);
    maker.make_files(&all)?;
    maker.finish()
}

/// Make those files again that a replay has changed.
pub fn reset(folder: &str, plan: &Plan, wanted: Wanted) -> Result<Done> {
    let mut changed: Vec<u32> = (0..plan.files.len() as u32)
        .filter(|number| plan.files[*number as usize].changed)
        .collect();
    let mut maker = Maker::of(folder, plan, wanted)?;
    // What is in a folder before the folder.
    changed.sort_by_key(|number| {
        std::cmp::Reverse(plan.files[*number as usize].path.as_bytes().len())
    });
    for number in &changed {
        maker.unlink(&plan.files[*number as usize])?;
    }
    let again: u64 = (changed.iter())
        .map(|number| plan.files[*number as usize].kept_bytes() + BYTES_PER_FILE)
        .fold(0, u64::saturating_add);
    check_room(folder, again.saturating_add(plan.facts.growth_bytes))?;
    changed.reverse();
    maker.make_files(&changed)?;
    maker.finish()
}

/// Return the inode of the folder; None if there is no such folder.
pub fn inode(folder: &str) -> Option<u64> {
    let status = stat(folder, false).ok()?;
    (status.st_mode & libc::S_IFMT == libc::S_IFDIR).then_some(status.st_ino)
}

/// Open the folder of a tree.
pub fn open(folder: &str) -> Result<OwnedFd> {
    let doing = format!("open the folder {folder} of a replay");
    let (parent, name) = hold_parent(folder, &doing)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    open_at(&parent, &name, flags, ResolveFlags::NO_SYMLINKS)
        .map_err(|errno| Error::errno(doing, errno))
}

fn check_room(folder: &str, bytes: u64) -> Result<()> {
    let parent = folder.trim_end_matches('/').rsplit_once('/');
    let parent = match parent {
        Some((parent, _)) if !parent.is_empty() => parent,
        _ => "/",
    };
    let status = statvfs(parent).doing(|| format!("statvfs {parent}"))?;
    let free = status.f_bavail.saturating_mul(status.f_frsize);
    match bytes > free {
        true => Err(Error::errno(
            format!(
                "make the files of a replay in {folder}: they and what the replay writes need {} MiB, and {} MiB are free",
                bytes.div_ceil(1 << 20),
                free >> 20
            ),
            libc::ENOSPC,
        )),
        false => Ok(()),
    }
}

struct Maker<'a> {
    folder: &'a str,
    root: OwnedFd,
    plan: &'a Plan,
    wanted: Wanted,
    in_pieces: bool,
    memory: Vec<u8>,
    /// Files of which to count the fragments.
    laid_out: Vec<u32>,
    done: Done,
}

impl<'a> Maker<'a> {
    fn of(folder: &'a str, plan: &'a Plan, wanted: Wanted) -> Result<Self> {
        let root = open(folder)?;
        Ok(Maker {
            folder,
            in_pieces: is_btrfs(&root)?,
            root,
            plan,
            wanted,
            memory: vec![0; PIECE + BLOCK as usize],
            laid_out: Vec::new(),
            done: Done::default(),
        })
    }

    /// Make the folders that these files were in, except those that only the replay makes.
    fn make_folders(&mut self, numbers: &[u32]) -> Result<()> {
        let plan = self.plan;
        let is_new = |file: &&FileFacts| file.size.is_none();
        let new: HashSet<&[u8]> = (plan.files.iter().filter(is_new))
            .map(|file| file.path.as_bytes())
            .collect();
        let mut made: HashSet<&[u8]> = HashSet::new();
        for number in numbers {
            let file = &plan.files[*number as usize];
            let path = file.place().to_bytes();
            let slashes = (0..path.len()).filter(|place| path[*place] == b'/');
            let own =
                (file.kind == FileKind::Directory && file.size.is_some()).then_some(path.len());
            for end in slashes.chain(own) {
                let folder = &path[..end];
                if file.size.is_none() && new.contains(folder) {
                    break;
                }
                if folder != b"." && made.insert(folder) {
                    self.make_folder(folder)?;
                }
            }
        }
        Ok(())
    }

    fn make_folder(&mut self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.parent_of(path)?;
        match mkdirat(&parent, &name, Mode::from_bits_retain(0o755)) {
            Err(Errno::EXIST) => return Ok(()),
            made => made.doing(|| format!("make folder {}", self.shown(path)))?,
        }
        self.done.made += 1;
        give_at(&parent, &name, self.wanted.owner, &self.shown(path))
    }

    fn make_files(&mut self, numbers: &[u32]) -> Result<()> {
        for number in numbers {
            let file = &self.plan.files[*number as usize];
            let path = file.place().to_bytes();
            match (file.kind, file.size) {
                (FileKind::Regular, Some(size)) => self.make_file(*number, size)?,
                (FileKind::Link, Some(_)) => {
                    let (parent, name) = self.parent_of(path)?;
                    symlinkat(LINK_TARGET, &parent, &name)
                        .doing(|| format!("make link {}", self.shown(path)))?;
                    give_at(&parent, &name, self.wanted.owner, &self.shown(path))?;
                    self.done.made += 1;
                }
                (FileKind::Directory, Some(_)) if path != b"." => self.make_folder(path)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn make_file(&mut self, number: u32, size: u64) -> Result<()> {
        let facts = &self.plan.files[number as usize];
        let path = self.shown(facts.place().to_bytes());
        let (parent, name) = self.parent_of(facts.place().to_bytes())?;
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
        let resolve = ResolveFlags::NO_SYMLINKS;
        let mode = Mode::from_bits_retain(0o644);
        let file =
            openat2(&parent, &name, flags, mode, resolve).doing(|| format!("make file {path}"))?;
        let parts = parts_of(facts, size, self.wanted.fragments);
        self.fill(&file, number, &parts, &path)?;
        ftruncate(&file, size).doing(|| format!("set the size of {path}"))?;
        give_at(&parent, &name, self.wanted.owner, &path)?;
        self.done.made += 1;
        Ok(())
    }

    /// Write the stored parts of a file, in the wanted number of fragments.
    fn fill(&mut self, file: &OwnedFd, number: u32, parts: &Parts, path: &str) -> Result<()> {
        if self.wanted.fragments && parts.len() > 1 {
            self.laid_out.push(number);
            let order = order(parts.len() as u64, u64::from(number) + 1);
            let aligned = |(from, length): &(u64, u64)| from % BLOCK == 0 && length % BLOCK == 0;
            if self.in_pieces && parts.iter().all(aligned) {
                past_the_cache(file, path, true)?;
                for place in order {
                    let (from, length) = parts[place as usize];
                    self.write(file, number, from, length, path)?;
                }
                return past_the_cache(file, path, false);
            }
            for place in order {
                let (from, length) = parts[place as usize];
                match take(file, from, length, path) {
                    // It stores the file as it likes.
                    Err(Error::Unsupported(_)) => break,
                    taken => taken?,
                }
            }
        }
        for (from, length) in parts {
            self.write(file, number, *from, *length, path)?;
        }
        Ok(())
    }

    /// Write random bytes, from memory aligned for direct I/O.
    fn write(
        &mut self,
        file: &OwnedFd,
        number: u32,
        from: u64,
        length: u64,
        path: &str,
    ) -> Result<()> {
        let start = self.memory.as_ptr().align_offset(BLOCK as usize);
        let memory = &mut self.memory[start..start + PIECE];
        let mut done = 0;
        while done < length {
            let n = (length - done).min(PIECE as u64) as usize;
            CONTENT.fill(number, from + done, &mut memory[..n]);
            write_at(file, &memory[..n], from + done, path)?;
            done += n as u64;
        }
        Ok(())
    }

    /// Remove a name, if it is there.
    fn unlink(&self, file: &FileFacts) -> Result<()> {
        let path = file.path.as_bytes();
        let (parent, name) = match self.parent_of(path) {
            Err(Error::Os {
                errno: libc::ENOENT | libc::ENOTDIR,
                ..
            }) => return Ok(()),
            found => found?,
        };
        let removed = match unlinkat(&parent, &name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => unlinkat(&parent, &name, AtFlags::REMOVEDIR),
            removed => removed,
        };
        match removed {
            Err(Errno::NOENT) => Ok(()),
            removed => removed.doing(|| format!("remove {}", self.shown(path))),
        }
    }

    /// Open the folder that a path is in. Returns it with the last part of the path.
    fn parent_of(&self, path: &[u8]) -> Result<(OwnedFd, CString)> {
        let (folder, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b"."[..], path),
        };
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| Error::bad(format!("{bytes:?} holds a NUL byte")))
        };
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = open_at(self.root.as_fd(), &text(folder)?, flags, resolve);
        let opened =
            opened.map_err(|errno| Error::errno(format!("open {}", self.shown(folder)), errno))?;
        Ok((opened, text(name)?))
    }

    fn shown(&self, path: &[u8]) -> String {
        format!("{}/{}", self.folder, String::from_utf8_lossy(path))
    }

    /// Write everything to the disk, and count the fragments.
    fn finish(mut self) -> Result<Done> {
        if self.done.made > 0 {
            syncfs(self.folder)?;
        }
        for number in &self.laid_out {
            let facts = &self.plan.files[*number as usize];
            let path = self.shown(facts.place().to_bytes());
            let (parent, name) = self.parent_of(facts.place().to_bytes())?;
            let flags = libc::O_RDONLY | libc::O_NOFOLLOW;
            let file = open_at(&parent, &name, flags, ResolveFlags::NO_SYMLINKS)
                .map_err(|errno| Error::errno(format!("open {path}"), errno))?;
            match extents::pieces(&file, &path) {
                Err(Error::Unsupported(_)) => continue,
                found => self.done.extents_found += found?,
            }
            self.done.extents_wanted += u64::from(facts.extents);
        }
        Ok(self.done)
    }
}

/// Return what of a file is stored, in whole blocks except at its end.
fn parts_of(facts: &FileFacts, size: u64, fragments: bool) -> Parts {
    let kept = facts.kept_bytes();
    let blocks = kept.div_ceil(BLOCK);
    let holes = kept < size;
    if size == 0 || kept == 0 {
        return Vec::new();
    }
    let pieces = match holes || fragments {
        true => u64::from(facts.extents).clamp(1, blocks.min(MOST_PARTS)),
        false => 1,
    };
    let all_blocks = size.div_ceil(BLOCK);
    let place =
        |total: u64, n: u64| (u128::from(total) * u128::from(n) / u128::from(pieces)) as u64;
    (0..pieces)
        .map(|n| {
            // Where the part would be if there were no holes, moved by its share of them.
            let length = (place(blocks, n + 1) - place(blocks, n)) * BLOCK;
            let from = (place(blocks, n) + place(all_blocks - blocks, n)) * BLOCK;
            (from, length.min(size - from))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(size: u64, stored: u64, extents: u32) -> FileFacts {
        FileFacts {
            path: c"a".to_owned(),
            origin: None,
            kind: FileKind::Regular,
            size: Some(size),
            stored,
            extents,
            position: 0,
            parent: u32::MAX,
            changed: false,
            growth: 0,
        }
    }

    #[test]
    fn a_file_is_stored_in_as_many_bytes_and_parts_as_it_was() {
        for (size, stored, extents) in [
            (1 << 30, 1 << 20, 7),
            (1 << 30, 1 << 30, 1),
            (5000, 4096, 1),
            (100, 0, 0),
            (1 << 40, 4096, u32::MAX),
            (10_000, 10_000, 900),
            (40_960, 36_864, 3),
        ] {
            for fragments in [false, true] {
                let parts = parts_of(&facts(size, stored, extents), size, fragments);
                let total: u64 = parts.iter().map(|part| part.1).sum();
                let kept = if size <= BLOCK { size } else { stored };
                assert!(total.abs_diff(kept) < BLOCK, "{size} {stored}: {total}");
                let mut end = 0;
                for (from, length) in &parts {
                    assert!(*from >= end && *from % BLOCK == 0 && *length > 0);
                    end = from + length;
                    assert!(end <= size);
                }
            }
        }
    }

    #[test]
    fn a_file_without_stored_bytes_is_one_hole() {
        assert!(parts_of(&facts(1 << 20, 0, 0), 1 << 20, true).is_empty());
        assert!(parts_of(&facts(0, 4096, 1), 0, false).is_empty());
    }
}
