//! Verifies that reads returned the files' content, and that written data reached the files.
//!
//! While the clock runs, each read adds its block's first word to a sum. Afterwards the same
//! sequence is replayed, and the sum is computed from the expected content. Blocks still in memory
//! are compared whole, as are some of the written ones, read back from the kernel.

use crate::error::Doing;
use std::os::unix::io::OwnedFd;

use super::layout::Place;
use super::work::Work;
use crate::error::{Error, Result};
use crate::fileset::{verify, FileSet};
use crate::jobs::region::Region;
use crate::sys::stat_of;

/// Number of the most recently written blocks that are read back.
const READ_BACK: usize = 64;

pub fn verify(
    set: &FileSet,
    files: &[u32],
    opened: &[OwnedFd],
    work: &Work,
    queued: Option<Vec<(usize, Place)>>,
) -> Result<()> {
    let tally = &work.tally;
    let mut sequence = work.layout.sequence();
    let mut sum = 0_u64;
    let (mut last_read, mut written) = (None, Vec::new());
    for n in 0..tally.done {
        let place = sequence.step();
        if place.write {
            if tally.done - n <= 4 * READ_BACK as u64 {
                written.push(place);
            }
        } else {
            let wanted = set.content.head(files[place.file as usize], place.offset);
            sum = sum.wrapping_add(wanted ^ place.draw);
            last_read = Some((0, place));
        }
    }
    let in_memory = queued.unwrap_or_else(|| last_read.into_iter().collect());
    for (buffer, place) in in_memory {
        let block = work.layout.block as usize;
        let start = work.buffers.at(buffer * block);
        // SAFETY: a buffer is a block, and nothing writes to it any more.
        let found = unsafe { std::slice::from_raw_parts(start, block) };
        compare(set, files, &place, found)?;
    }
    if sum != tally.sum {
        return Err(first_difference(set, files)?);
    }
    read_back(set, files, opened, work, &written)
}

/// Compare one block with the expected content.
fn compare(set: &FileSet, files: &[u32], place: &Place, found: &[u8]) -> Result<()> {
    let index = files[place.file as usize];
    let mut wanted = vec![0; found.len()];
    set.content.fill(index, place.offset, &mut wanted);
    match found.iter().zip(&wanted).position(|(f, w)| f != w) {
        None => Ok(()),
        Some(at) => Err(Error::verify(format!(
            "random work on {}: expected {:#04x} at offset {}, found {:#04x}",
            set.path(index),
            wanted[at],
            place.offset + at as u64,
            found[at]
        ))),
    }
}

/// Find the file with wrong content. If it has been corrected since, only the fact remains.
fn first_difference(set: &FileSet, files: &[u32]) -> Result<Error> {
    verify::files(set, files)?;
    Ok(Error::verify(format!(
        "random work on files of {}: blocks read during the job differed from what was written, but are correct now",
        set.dir
    )))
}

fn read_back(
    set: &FileSet,
    files: &[u32],
    opened: &[OwnedFd],
    work: &Work,
    written: &[Place],
) -> Result<()> {
    if !work.layout.writes() {
        return Ok(());
    }
    let mut buffer = Region::filled(work.layout.block as usize)?;
    for place in written.iter().rev().take(READ_BACK) {
        let path = set.path(files[place.file as usize]);
        let n = rustix::io::pread(&opened[place.file as usize], &mut buffer[..], place.offset)
            .doing(|| format!("read back {path}"))?;
        compare(set, files, place, &buffer[..n])?;
    }
    for (index, file) in files.iter().zip(opened) {
        let path = set.path(*index);
        let (wanted, found) = (
            set.files[*index as usize].size,
            stat_of(file, &path)?.st_size as u64,
        );
        if wanted != found {
            return Err(Error::verify(format!(
                "random work on {path}: expected size {wanted} after the job, found {found}"
            )));
        }
    }
    Ok(())
}
