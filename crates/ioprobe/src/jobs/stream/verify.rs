//! Verifies what a stream wrote, byte by byte, and the number of bytes it moved.

use std::os::unix::io::{AsRawFd, OwnedFd};

use super::data::{Data, PAGE};
use super::timed::{Done, Ended};
use crate::error::{Error, Result};
use crate::sys::{open_quietly, read_full, stat_of};

/// The size of one comparison: a whole number of pages.
pub const PIECE: usize = 256 * PAGE;

/// Verify a written file. `forget`: drop the pages that this brings into the cache, because the
/// work left none.
pub fn written(path: &str, data: &Data, volume: u64, size: u64, forget: bool) -> Result<()> {
    let file = open_quietly(path)?;
    let found = stat_of(&file, path)?.st_size as u64;
    if found != size {
        return Err(Error::verify(format!(
            "stream to {path}: expected size {size} after the job, found {found}"
        )));
    }
    let (mut piece, mut wanted) = (vec![0; PIECE], vec![0; PIECE]);
    let mut offset = 0;
    while offset < volume {
        let length = (PIECE as u64).min(volume - offset) as usize;
        let n = read_full(&file, &mut piece[..length], path)?;
        data.fill(offset, &mut wanted[..length]);
        if n != length {
            return Err(Error::verify(format!(
                "stream to {path}: expected {volume} bytes, found {}",
                offset + n as u64
            )));
        }
        if piece[..length] != wanted[..length] {
            let at = (0..length)
                .find(|at| piece[*at] != wanted[*at])
                .unwrap_or(0);
            return Err(Error::verify(format!(
                "stream to {path}: expected {:#04x} at offset {}, found {:#04x}",
                wanted[at],
                offset + at as u64,
                piece[at]
            )));
        }
        if forget {
            forget_part(&file, offset, length);
        }
        offset += length as u64;
    }
    Ok(())
}

/// Compare the copy with its source, byte by byte.
pub fn copied(from: &str, to: &str, volume: u64, size: u64, forget: bool) -> Result<()> {
    let (source, copy) = (open_quietly(from)?, open_quietly(to)?);
    let found = stat_of(&copy, to)?.st_size as u64;
    if found != size {
        return Err(Error::verify(format!(
            "copy to {to}: expected size {size} after the job, found {found}"
        )));
    }
    let (mut wanted, mut piece) = (vec![0; PIECE], vec![0; PIECE]);
    let mut offset = 0;
    while offset < volume {
        let length = (PIECE as u64).min(volume - offset) as usize;
        let n = read_full(&source, &mut wanted[..length], from)?;
        let m = read_full(&copy, &mut piece[..length], to)?;
        if n != length || m != length || wanted[..length] != piece[..length] {
            return Err(Error::verify(format!(
                "copy of {from} to {to}: the {length} bytes from offset {offset} on differ"
            )));
        }
        if forget {
            forget_part(&source, offset, length);
            forget_part(&copy, offset, length);
        }
        offset += length as u64;
    }
    Ok(())
}

fn forget_part(file: &OwnedFd, offset: u64, length: usize) {
    let (offset, length) = (offset as i64, length as i64);
    // SAFETY: no pointers are involved.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, length, libc::POSIX_FADV_DONTNEED) };
}

/// Check that all bytes were moved, unless the time limit ended the stream earlier.
pub fn moved(what: &str, done: &Done, wanted: u64) -> Result<()> {
    if done.bytes == wanted || (done.ended == Ended::Time && done.bytes > 0 && done.bytes <= wanted)
    {
        return Ok(());
    }
    Err(Error::verify(format!(
        "stream of {what}: expected {wanted} bytes, found {}",
        done.bytes
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_was_wanted_is_enough_only_when_the_time_was_up() {
        let check = |bytes, ended| {
            let done = Done {
                bytes,
                ended,
                ..Done::default()
            };
            moved("x", &done, 100).is_ok()
        };
        assert!(check(100, Ended::Volume) && check(99, Ended::Time));
        assert!(!check(99, Ended::Volume) && !check(99, Ended::End));
        assert!(!check(0, Ended::Time) && !check(101, Ended::Time));
    }
}
