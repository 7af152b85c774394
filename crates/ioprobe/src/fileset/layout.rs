//! Lays files out on the disk in a given number of fragments, with their content unchanged.
//!
//! A file is truncated, and blocks are allocated to its pieces one by one in a shuffled order, so
//! that neighbours in the file are not neighbours on the disk. Space is allocated by fallocate(2),
//! because ext4 places a write where its offset suggests (fs/ext4/extents.c, ext4_ext_find_goal;
//! fs/ext4/mballoc.c, ext4_mb_normalize_request), which undoes any order. btrfs takes most of a
//! second to fill thousands of small preallocated pieces; as it copies on write, writing the pieces
//! in that order has the same effect. The fragments are counted afterwards, and the layout is
//! retried if chance has put pieces next to each other.

use rustix::fs::{fallocate, fcntl_getfl, fcntl_setfl, FallocateFlags, OFlags};
use rustix::io::Errno;
use std::os::unix::io::OwnedFd;

use serde_json::{json, Value};

use super::create::open_for_rewriting;
use super::{extents, FileSet, Registry};
use crate::content::{key, word};
use crate::error::{Doing, Error, Result};
use crate::protocol::LayFiles;
use crate::sys::open;

/// No supported file system has larger blocks, or allows smaller pieces.
const BLOCK: u64 = 4096;
const PIECE: usize = 1 << 20;
const ATTEMPTS: u64 = 4;
/// The number of fragments may be off by one in this many.
const CLOSE_ENOUGH: u64 = 25;
const BTRFS_SUPER_MAGIC: u64 = 0x9123_683e;

/// Lay out the files of a request. `extents` is the total of all files, distributed evenly.
pub fn lay(request: LayFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let files = set.select(&request.files)?;
    let wanted = shares(set, &files, request.extents)?;
    for index in &files {
        open_for_rewriting(&set.path(*index))?;
    }
    let folder = open(&set.root(None), libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    // Freed blocks can be reused only after the freeing is on the disk.
    sync_all(&folder, set)?;
    let mut writer = Writer::new(set, is_btrfs(&folder)?);
    for (index, wanted) in files.iter().zip(&wanted) {
        writer.lay(*index, *wanted, 0)?;
    }
    sync_all(&folder, set)?;
    let mut found = 0;
    for (index, wanted) in files.iter().zip(&wanted) {
        found += settle(&mut writer, *index, *wanted)?;
    }
    Ok(json!({"changed": files.len(), "extents": found}))
}

/// Distribute the pieces over the files as evenly as possible.
fn shares(set: &FileSet, files: &[u32], extents: u64) -> Result<Vec<u64>> {
    let count = files.len() as u64;
    let blocks = |index: &u32| blocks_of(set.files[*index as usize].size);
    let room = files.iter().map(blocks).min().unwrap_or(0);
    if count == 0 || extents < count || extents > count * room {
        return Err(Error::bad(format!(
            "lay out files of {}: extents: expected {count} (one per file) to {} (if every file had one per block of {BLOCK} bytes \
             in the smallest file), found {extents}",
            set.dir,
            count * room
        )));
    }
    let until = |n: u64| (u128::from(extents) * u128::from(n) / u128::from(count)) as u64;
    Ok((0..count).map(|n| until(n + 1) - until(n)).collect())
}

fn blocks_of(size: u64) -> u64 {
    size.div_ceil(BLOCK)
}

/// Redo the layout of a file while it has too many or too few fragments. Returns the final number.
fn settle(writer: &mut Writer, index: u32, wanted: u64) -> Result<u64> {
    let path = writer.set.path(index);
    for attempt in 1.. {
        let file = super::cache::open_any_way(&path)?;
        let found = extents::pieces(&file, &path)?;
        if found.abs_diff(wanted) * CLOSE_ENOUGH <= wanted || attempt == ATTEMPTS {
            return Ok(found);
        }
        drop(open_for_rewriting(&path)?);
        rustix::fs::fsync(&file).doing(|| format!("fsync {path}"))?;
        writer.lay(index, wanted, attempt)?;
    }
    unreachable!("the last attempt returns")
}

struct Writer<'a> {
    set: &'a FileSet,
    in_pieces: bool,
    memory: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(set: &'a FileSet, in_pieces: bool) -> Self {
        Writer {
            set,
            in_pieces,
            memory: vec![0; PIECE + BLOCK as usize],
        }
    }

    /// Lay out an empty file.
    fn lay(&mut self, index: u32, pieces: u64, attempt: u64) -> Result<()> {
        let path = self.set.path(index);
        let size = self.set.files[index as usize].size;
        if size == 0 {
            return Ok(());
        }
        let file = open_for_rewriting(&path)?;
        let blocks = blocks_of(size);
        let order = order(pieces, key(self.set.content.seed ^ attempt, index));
        let piece = |n: u64| {
            (
                blocks * n / pieces * BLOCK,
                blocks * (n + 1) / pieces * BLOCK,
            )
        };
        if self.in_pieces && pieces > 1 && blocks / pieces * BLOCK < PIECE as u64 {
            past_the_cache(&file, &path, true)?;
            for n in order {
                let (from, to) = piece(n);
                self.write(&file, index, from, to, &path)?;
            }
            past_the_cache(&file, &path, false)?;
        } else {
            for n in order {
                let (from, to) = piece(n);
                take(&file, from, to.min(size) - from, &path)?;
            }
            self.write(&file, index, 0, size, &path)?;
        }
        rustix::fs::ftruncate(&file, size).doing(|| format!("set the size of {path}"))?;
        Ok(())
    }

    /// Write the file's content in this range, from memory aligned for direct I/O.
    fn write(&mut self, file: &OwnedFd, index: u32, from: u64, to: u64, path: &str) -> Result<()> {
        let start = self.memory.as_ptr().align_offset(BLOCK as usize);
        let memory = &mut self.memory[start..start + PIECE];
        let mut offset = from;
        while offset < to {
            let n = (to - offset).min(PIECE as u64) as usize;
            self.set.content.fill(index, offset, &mut memory[..n]);
            write_at(file, &memory[..n], offset, path)?;
            offset += n as u64;
        }
        Ok(())
    }
}

/// Shuffle the numbers below `pieces` (Fisher-Yates), with none directly after its predecessor.
pub fn order(pieces: u64, key: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..pieces).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, (word(key, last as u64) % (last as u64 + 1)) as usize);
    }
    for n in 1..order.len() {
        if order[n] == order[n - 1] + 1 {
            order.swap(n - 1, n);
        }
    }
    order
}

pub fn take(file: &OwnedFd, offset: u64, length: u64, path: &str) -> Result<()> {
    match fallocate(file, FallocateFlags::KEEP_SIZE, offset, length) {
        Err(Errno::OPNOTSUPP) => Err(Error::unsupported(format!(
            "allocate {length} bytes of {path}: its file system does not support fallocate"
        ))),
        taken => taken.doing(|| format!("allocate {length} bytes of {path} at {offset}")),
    }
}

pub fn write_at(file: &OwnedFd, mut bytes: &[u8], mut offset: u64, path: &str) -> Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, offset) {
            Err(Errno::INTR) => {}
            written => {
                let n = written.doing(|| format!("write {path}"))?;
                bytes = &bytes[n..];
                offset += n as u64;
            }
        }
    }
    Ok(())
}

pub fn past_the_cache(file: &OwnedFd, path: &str, on: bool) -> Result<()> {
    let switched = fcntl_getfl(file).and_then(|mut flags| {
        flags.set(OFlags::DIRECT, on);
        fcntl_setfl(file, flags)
    });
    switched.doing(|| format!("switch direct I/O of {path}"))
}

pub fn is_btrfs(folder: &OwnedFd) -> Result<bool> {
    let facts = rustix::fs::fstatfs(folder).doing(|| "look up the file system of the files")?;
    Ok(facts.f_type as u64 & 0xffff_ffff == BTRFS_SUPER_MAGIC)
}

fn sync_all(folder: &OwnedFd, set: &FileSet) -> Result<()> {
    rustix::fs::syncfs(folder).doing(|| format!("sync the file system of {}", set.dir))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::set_of;
    use super::*;

    #[test]
    fn every_piece_has_its_turn_and_none_follows_the_one_before_it() {
        for pieces in [1, 2, 3, 7, 100, 16_384] {
            for key in 0..20 {
                let mut order = order(pieces, key);
                assert!(
                    order.windows(2).all(|two| two[1] != two[0] + 1),
                    "{order:?}"
                );
                order.sort_unstable();
                assert_eq!(order, (0..pieces).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn extents_are_shared_out_evenly_and_never_more_than_there_are_blocks() {
        let mut set = set_of(4, 1);
        for file in &mut set.files {
            file.size = 5 * BLOCK - 1;
        }
        assert_eq!(shares(&set, &[0, 1, 2, 3], 4).unwrap(), [1, 1, 1, 1]);
        assert_eq!(shares(&set, &[0, 1, 2, 3], 6).unwrap(), [1, 2, 1, 2]);
        assert_eq!(shares(&set, &[0, 1, 2, 3], 20).unwrap(), [5, 5, 5, 5]);
        for wrong in [0, 3, 21] {
            assert!(shares(&set, &[0, 1, 2, 3], wrong).is_err());
        }
    }
}
