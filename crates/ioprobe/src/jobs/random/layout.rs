//! The sequence of blocks: a function of the request alone, so that it can be replayed afterwards.
//!
//! Nothing is precomputed in memory: a draw is one SplitMix64 word, a few instructions in
//! registers. The check of what was read replays the same draws after the clock has stopped.

use crate::content::{mix, word};
use crate::error::{Error, Result};
use crate::fileset::FileSet;
use crate::protocol::{Access, RandomJob};

/// One operation: a block of a file, read or write, and the word drawn for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Position in the job's list of files.
    pub file: u32,
    pub write: bool,
    pub offset: u64,
    pub draw: u64,
}

pub struct Layout {
    pub block: u64,
    access: Access,
    key: u64,
    /// The number of whole blocks of each file.
    blocks: Vec<u64>,
    /// Operations skipped at the start of the sequence.
    passed: u64,
    /// A draw of 32 bits below this is a write.
    write_below: u64,
}

impl Layout {
    pub fn of(set: &FileSet, files: &[u32], own: &RandomJob) -> Result<Self> {
        let mut blocks = Vec::with_capacity(files.len());
        for index in files {
            let file = &set.files[*index as usize];
            let whole = file.size / own.block;
            if !file.exists || !(1..=u64::from(u32::MAX)).contains(&whole) {
                return Err(Error::bad(format!(
                    "request random: {}: expected a file of 1 to {} blocks of {} bytes, found {}",
                    set.path(*index),
                    u32::MAX,
                    own.block,
                    if file.exists {
                        format!("{} bytes", file.size)
                    } else {
                        "none".to_string()
                    }
                )));
            }
            blocks.push(whole);
        }
        Ok(Layout {
            block: own.block,
            access: own.order,
            key: mix(own.seed),
            blocks,
            passed: 0,
            write_below: (own.write_share * 2_f64.powi(32)).ceil() as u64,
        })
    }

    pub fn writes(&self) -> bool {
        self.write_below > 0
    }

    /// Skip this many more operations at the start of the sequence.
    pub fn pass_over(&mut self, places: u64) {
        self.passed += places;
    }

    /// Return the endless sequence of operations, starting after the skipped ones.
    pub fn sequence(&self) -> Sequence<'_> {
        let mut block = self.passed % self.blocks.iter().sum::<u64>();
        let mut file = 0;
        while block >= self.blocks[file] {
            block -= self.blocks[file];
            file += 1;
        }
        Sequence {
            layout: self,
            n: self.passed,
            next: (file, block),
        }
    }
}

pub struct Sequence<'a> {
    layout: &'a Layout,
    n: u64,
    /// The next file and block in sequential order.
    next: (usize, u64),
}

impl Sequence<'_> {
    #[inline(always)]
    pub fn step(&mut self) -> Place {
        let layout = self.layout;
        let draw = word(layout.key, self.n);
        self.n += 1;
        let (file, block) = match layout.access {
            Access::Random => {
                let file = below(draw >> 32, layout.blocks.len() as u64) as usize;
                (file, below(draw & LOW, layout.blocks[file]))
            }
            Access::Sequential => {
                let (file, block) = self.next;
                self.next = if block + 1 < layout.blocks[file] {
                    (file, block + 1)
                } else if file + 1 < layout.blocks.len() {
                    (file + 1, 0)
                } else {
                    (0, 0)
                };
                (file, block)
            }
        };
        Place {
            file: file as u32,
            write: layout.write_below > 0 && (mix(draw) & LOW) < layout.write_below,
            offset: block * layout.block,
            draw,
        }
    }
}

const LOW: u64 = u32::MAX as u64;

/// Map 32 random bits to a number below `bound` by multiplication (Lemire 2019). The bias is less
/// than `bound` in 2^32.
#[inline(always)]
fn below(bits: u64, bound: u64) -> u64 {
    (bits * bound) >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fileset::tests::set_of;
    use crate::protocol::Engine;

    fn layout(access: Access, sizes: &[u64], write_share: f64) -> Layout {
        let mut set = set_of(sizes.len() as u32, 1);
        for (file, size) in set.files.iter_mut().zip(sizes) {
            file.size = *size;
        }
        let own = RandomJob {
            write_share,
            ..request(access)
        };
        let files: Vec<u32> = (0..sizes.len() as u32).collect();
        Layout::of(&set, &files, &own).unwrap()
    }

    fn request(order: Access) -> RandomJob {
        RandomJob {
            engine: Engine::Psync,
            block: 4096,
            order,
            write_share: 0.0,
            direct: false,
            depth: 1,
            batch: None,
            ramp: 0,
            operations: Some(1),
            time_s: None,
            rate: None,
            seed: 1,
            histograms: false,
            series: false,
        }
    }

    #[test]
    fn sequential_order_is_file_by_file_block_by_block_and_again() {
        let layout = layout(Access::Sequential, &[8192, 4096, 12_287], 0.0);
        let mut sequence = layout.sequence();
        let found: Vec<_> = (0..7).map(|_| sequence.step()).collect();
        let places: Vec<_> = found.iter().map(|p| (p.file, p.offset)).collect();
        let (one, two) = (4096, 8192);
        assert_eq!(
            places,
            [(0, 0), (0, one), (1, 0), (2, 0), (2, one), (0, 0), (0, one)]
        );
        assert!(two > one && found.iter().all(|p| !p.write));
    }

    #[test]
    fn random_order_reaches_all_blocks_about_equally_often() {
        let layout = layout(Access::Random, &[4096 * 10, 4096 * 10], 0.25);
        let (mut counts, mut writes) = ([[0_u32; 10]; 2], [[0_u32; 10]; 2]);
        let mut sequence = layout.sequence();
        for _ in 0..20_000 {
            let place = sequence.step();
            let (file, block) = (place.file as usize, (place.offset / 4096) as usize);
            counts[file][block] += 1;
            writes[file][block] += u32::from(place.write);
        }
        // Binomial: 1000 with a standard deviation of 31, 250 of them writes with one of 16.
        assert!(
            counts.iter().flatten().all(|n| (830..1170).contains(n)),
            "{counts:?}"
        );
        assert!(
            writes.iter().flatten().all(|n| (165..335).contains(n)),
            "{writes:?}"
        );
    }

    #[test]
    fn what_is_passed_over_is_missing_at_the_begin_alone() {
        for access in [Access::Random, Access::Sequential] {
            let whole = layout(access, &[8192, 4096, 12_287], 0.5);
            let mut all = whole.sequence();
            let wanted: Vec<_> = (0..40).map(|_| all.step()).collect();
            for passed in [1, 2, 3, 4, 5, 33] {
                let mut later = layout(access, &[8192, 4096, 12_287], 0.5);
                later.pass_over(passed - 1);
                later.pass_over(1);
                let mut sequence = later.sequence();
                for place in &wanted[passed as usize..] {
                    assert!(sequence.step() == *place);
                }
            }
        }
    }

    #[test]
    fn the_same_request_goes_the_same_way() {
        let (a, b) = (
            layout(Access::Random, &[1 << 30], 0.5),
            layout(Access::Random, &[1 << 30], 0.5),
        );
        let (mut a, mut b) = (a.sequence(), b.sequence());
        assert!((0..1000).all(|_| a.step() == b.step()));
    }

    #[test]
    fn a_file_smaller_than_a_block_is_refused() {
        let error = Layout::of(&set_of(1, 1), &[0], &request(Access::Random));
        assert!(error.err().unwrap().to_string().contains("found 10 bytes"));
    }
}
