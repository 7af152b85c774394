//! The data that a stream writes: zeros, or pages of which a share is random.
//!
//! Most volumes do not fit into memory, and nothing may be generated while the clock runs. So the
//! random part repeats after 16 MiB, but the first word of each page of 4 KiB is unique: a
//! deduplicating device sees no two equal pages, and no compressor looks back that far. Setting
//! that word is one store to a page that the kernel is about to read anyway.

use crate::content::{key, word};
use crate::error::Result;
use crate::jobs::region::Region;
use crate::protocol::Share;

pub const PAGE: usize = 4096;
/// Bytes after which the random part repeats.
const PERIOD: u64 = 1 << 24;
const WORD: usize = 8;
const WORDS_OF_A_PERIOD: u64 = PERIOD / WORD as u64;

/// Data as a function of (share, key, offset), so that written data can be verified without keeping
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Number of random bytes in each page, whole words. The rest is zeros.
    random: usize,
    key: u64,
}

impl Data {
    pub fn new(share: Share, seed: u64, index: u32) -> Self {
        Data {
            random: PAGE * usize::from(share.percent) / 100 / WORD * WORD,
            key: key(seed, index),
        }
    }

    pub fn is_zeros(&self) -> bool {
        self.random == 0
    }

    /// Generate the data at `offset`, a multiple of a page.
    pub fn fill(&self, offset: u64, pages: &mut [u8]) {
        for (n, page) in pages.chunks_mut(PAGE).enumerate() {
            let start = offset + (n * PAGE) as u64;
            let end = self.random.min(page.len());
            let first = start % PERIOD / WORD as u64;
            for (n, part) in page[..end].chunks_mut(WORD).enumerate() {
                let bytes = word(self.key, first + n as u64).to_le_bytes();
                part.copy_from_slice(&bytes[..part.len()]);
            }
            page[end..].fill(0);
        }
        self.mark(offset, pages);
    }

    /// Set the unique first word of every page that overlaps `block`, which is at `offset`.
    #[inline(always)]
    pub fn mark(&self, offset: u64, block: &mut [u8]) {
        if self.random == 0 {
            return;
        }
        let page = PAGE as u64;
        let end = offset + block.len() as u64;
        let mut number = offset / page;
        while number * page < end {
            let own = word(self.key, WORDS_OF_A_PERIOD + number).to_le_bytes();
            let start = number * page;
            if start >= offset && start + WORD as u64 <= end {
                let at = (start - offset) as usize;
                block[at..at + WORD].copy_from_slice(&own);
            } else {
                for (n, byte) in own.iter().enumerate() {
                    let place = start + n as u64;
                    if place >= offset && place < end {
                        block[(place - offset) as usize] = *byte;
                    }
                }
            }
            number += 1;
        }
    }
}

/// Blocks to write, prepared in memory except for the first words of their pages.
pub struct Prepared {
    data: Data,
    memory: Region,
    /// For zeros: the memory that random data would take on top of one block. Under a memory limit,
    /// this leaves the page cache the same room whatever is written.
    _spare: Option<Region>,
}

impl Prepared {
    pub fn new(data: Data, block: usize, volume: u64) -> Result<Self> {
        let period = PERIOD.min(volume) as usize;
        if data.is_zeros() {
            return Ok(Prepared {
                data,
                memory: Region::zeroed(block)?,
                _spare: Some(Region::zeroed(period)?),
            });
        }
        // A block may start at the end of one period and extend into the next.
        let length = (period + block).div_ceil(PAGE) * PAGE;
        let mut memory = Region::zeroed(length)?;
        data.fill(0, &mut memory);
        Ok(Prepared {
            data,
            memory,
            _spare: None,
        })
    }

    /// Return the block at `offset`.
    #[inline(always)]
    pub fn block(&mut self, offset: u64, length: usize) -> &mut [u8] {
        if self.data.is_zeros() {
            return &mut self.memory[..length];
        }
        let at = (offset % PERIOD) as usize;
        let block = &mut self.memory[at..at + length];
        self.data.mark(offset, block);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(percent: u8) -> Data {
        Data::new(Share { percent }, 7, 3)
    }

    fn written(percent: u8, block: usize, volume: u64) -> Vec<u8> {
        let mut prepared = Prepared::new(data(percent), block, volume).unwrap();
        let mut all = Vec::new();
        while (all.len() as u64) < volume {
            let length = block.min((volume - all.len() as u64) as usize);
            let offset = all.len() as u64;
            all.extend_from_slice(prepared.block(offset, length));
        }
        all
    }

    #[test]
    fn blocks_of_any_size_add_up_to_the_same_data() {
        let volume = 3 * PAGE as u64 + 100;
        let mut whole = vec![0xff; volume as usize];
        data(50).fill(0, &mut whole);
        for block in [1, 7, 512, 4096, 4097, 16_535] {
            assert!(written(50, block, volume) == whole, "block {block}");
        }
    }

    #[test]
    fn a_block_may_reach_from_one_period_into_the_next() {
        let volume = PERIOD + 100_000;
        let mut whole = vec![0xff; volume as usize];
        data(100).fill(0, &mut whole);
        assert!(written(100, 16_535, volume) == whole);
        assert!(whole[PERIOD as usize + 8..][..4088] == whole[8..4096]);
        assert!(whole[PERIOD as usize..][..8] != whole[..8]);
    }

    #[test]
    fn the_share_of_each_page_is_what_was_asked_for() {
        for (percent, random) in [(0, 0), (1, 40), (50, 2048), (100, 4096)] {
            let mut pages = vec![0xff; 2 * PAGE];
            data(percent).fill(0, &mut pages);
            for page in pages.chunks(PAGE) {
                assert!(page[random..].iter().all(|byte| *byte == 0), "{percent}");
                let zeros = page[..random].iter().filter(|byte| **byte == 0).count();
                assert!(zeros <= 8 + random / 100, "{percent}: {zeros}");
            }
        }
    }
}
