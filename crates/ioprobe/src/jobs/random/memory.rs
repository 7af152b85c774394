//! The data that a job writes, kept in memory.

use crate::content::{Content, Kind};
use crate::error::{Error, Result};
use crate::jobs::region::Region;

/// Limit, in bytes, on the data to write that is kept in memory.
const MOST_HELD: u64 = 1 << 30;
const PIECE: usize = 1 << 20;

/// The data to write: what the files already hold at those offsets. Generated before the clock
/// starts, because generating a block takes as long as writing it.
pub struct Image {
    region: Region,
    /// The start of each file's data; None if one block of zeros serves all.
    starts: Option<Vec<usize>>,
}

impl Image {
    /// Generate the data. `files` holds indices, each with the length that may be written.
    pub fn of(content: &Content, files: &[(u32, u64)], block: u64) -> Result<Self> {
        if content.kind == Kind::Zeros {
            return Ok(Image {
                region: Region::zeroed(block as usize)?,
                starts: None,
            });
        }
        let total: u64 = files.iter().map(|(_, length)| length).sum();
        if total > MOST_HELD {
            return Err(Error::unsupported(format!(
                "keep the written data for verification: expected at most {MOST_HELD} bytes of files, found {total} (files of zeros have no limit)"
            )));
        }
        let mut region = Region::zeroed(total as usize)?;
        let mut starts = Vec::with_capacity(files.len());
        let mut rest = &mut region[..];
        let mut start = 0;
        for (index, length) in files {
            let (this, others) = rest.split_at_mut(*length as usize);
            for (n, piece) in this.chunks_mut(PIECE).enumerate() {
                content.fill(*index, (n * PIECE) as u64, piece);
            }
            starts.push(start);
            start += *length as usize;
            rest = others;
        }
        Ok(Image {
            region,
            starts: Some(starts),
        })
    }

    #[inline(always)]
    pub fn at(&self, file: u32, offset: u64) -> *const u8 {
        match &self.starts {
            None => self.region.at(0),
            Some(starts) => self.region.at(starts[file as usize] + offset as usize),
        }
    }

    pub fn region(&self) -> &Region {
        &self.region
    }

    pub fn leak(&mut self) {
        self.region.leak();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_holds_what_the_files_hold() {
        for kind in [Kind::Text, Kind::Random, Kind::Zeros] {
            let content = Content { kind, seed: 3 };
            let image = Image::of(&content, &[(7, 3 << 20), (2, 8192)], 4096).unwrap();
            for (file, index, offset) in [(0, 7, 0), (0, 7, 2 << 20), (1, 2, 4096)] {
                let mut wanted = vec![1; 4096];
                content.fill(index, offset, &mut wanted);
                // SAFETY: the image holds a block there.
                let found = unsafe { std::slice::from_raw_parts(image.at(file, offset), 4096) };
                assert_eq!(found, wanted);
            }
        }
    }

    #[test]
    fn more_than_can_be_held_is_refused() {
        let content = Content {
            kind: Kind::Text,
            seed: 3,
        };
        assert!(Image::of(&content, &[(0, MOST_HELD), (1, 4096)], 4096).is_err());
    }
}
