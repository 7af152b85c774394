//! Verifies every file of a set against its expected content.
//!
//! Every byte is compared with the generator's output, so "verified" covers more than sizes. The
//! checksum covers all files concatenated, for verification with other tools.

use serde_json::{json, Value};

use super::{FileSet, Registry};
use crate::error::{Error, Result};
use crate::protocol::OfSet;
use crate::sys::{open_quietly, read_full, stat_of};
use crc32fast::Hasher;

const PIECE: usize = 1 << 20;

pub fn verify(request: OfSet, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let there = (0..set.files.len() as u32).filter(|n| set.files[*n as usize].exists);
    files(set, &there.collect::<Vec<_>>())
}

/// Verify some files of a set, byte by byte.
pub fn files(set: &FileSet, chosen: &[u32]) -> Result<Value> {
    let largest = set.files.iter().map(|file| file.size).max().unwrap_or(0);
    // One byte more than the file should have, to detect excess bytes.
    let room = largest.min(PIECE as u64) as usize + 1;
    let (mut found, mut wanted) = (vec![0; room], vec![0; room]);
    let mut checksum = Hasher::new();
    let mut bytes = 0;
    for index in chosen {
        bytes += file(set, *index, &mut found, &mut wanted, &mut checksum)?;
    }
    Ok(json!({
        "files": chosen.len(),
        "bytes": bytes,
        "checksum": format!("crc32:{:08x}", checksum.finalize()),
    }))
}

fn file(
    set: &FileSet,
    index: u32,
    found: &mut [u8],
    wanted: &mut [u8],
    checksum: &mut Hasher,
) -> Result<u64> {
    let path = set.path(index);
    let size = set.files[index as usize].size;
    let opened = open_quietly(&path)?;
    let actual = stat_of(&opened, &path)?.st_size as u64;
    if actual != size {
        return Err(Error::verify(format!(
            "verify {path}: expected {size} bytes, found {actual}"
        )));
    }
    let mut offset = 0;
    loop {
        let n = read_full(&opened, found, &path)?;
        let (found, wanted) = (&found[..n], &mut wanted[..n]);
        set.content.fill(index, offset, wanted);
        if let Some(at) = found.iter().zip(wanted.iter()).position(|(f, w)| f != w) {
            return Err(Error::verify(format!(
                "verify {path}: expected {:#04x} at offset {}, found {:#04x}",
                wanted[at],
                offset + at as u64,
                found[at]
            )));
        }
        checksum.update(found);
        offset += n as u64;
        if n == 0 || offset > size {
            break;
        }
    }
    if offset != size {
        return Err(Error::verify(format!(
            "verify {path}: read {offset} of {size} bytes"
        )));
    }
    Ok(size)
}
