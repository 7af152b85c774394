//! The content of a disk's write cache that is not yet on the platter: extents by offset, adjacent
//! ones merged.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub offset: u64,
    pub length: u64,
    /// Number of the oldest write in it: a flush waits for the writes before it.
    pub oldest: u64,
    /// When its first byte had arrived, in nanoseconds.
    pub ready: u64,
}

#[derive(Debug, Default)]
pub struct Dirty {
    /// By offset: end, oldest write, time of arrival.
    extents: BTreeMap<u64, (u64, u64, u64)>,
    bytes: u64,
}

impl Dirty {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// Return the number of the oldest write that is not on the platter.
    pub fn oldest(&self) -> Option<u64> {
        self.extents.values().map(|(_, oldest, _)| *oldest).min()
    }

    pub fn insert(&mut self, new: Extent) {
        let (mut start, mut end) = (new.offset, new.offset + new.length);
        let (mut oldest, mut ready) = (new.oldest, new.ready);
        let touching: Vec<u64> = self
            .extents
            .range(..=end)
            .rev()
            .take_while(|(_, (their_end, _, _))| *their_end >= start)
            .map(|(offset, _)| *offset)
            .collect();
        for offset in touching {
            if let Some((their_end, their_oldest, their_ready)) = self.extents.remove(&offset) {
                self.bytes -= their_end - offset;
                start = start.min(offset);
                end = end.max(their_end);
                oldest = oldest.min(their_oldest);
                ready = ready.min(their_ready);
            }
        }
        self.bytes += end - start;
        self.extents.insert(start, (end, oldest, ready));
    }

    /// Return the extents in the order in which an arm at `head` passes them: inwards first, then
    /// from the outermost one again.
    pub fn from(&self, head: u64) -> impl Iterator<Item = Extent> + '_ {
        let extent = |(offset, (end, oldest, ready)): (&u64, &(u64, u64, u64))| Extent {
            offset: *offset,
            length: end - offset,
            oldest: *oldest,
            ready: *ready,
        };
        self.extents
            .range(head..)
            .chain(self.extents.range(..head))
            .map(extent)
    }

    /// Take up to this many bytes from the front of an extent. The rest stays.
    pub fn take(&mut self, offset: u64, most: u64) -> Option<Extent> {
        let (end, oldest, ready) = self.extents.remove(&offset)?;
        let length = most.min(end - offset);
        self.bytes -= length;
        if offset + length < end {
            self.extents.insert(offset + length, (end, oldest, ready));
        }
        Some(Extent {
            offset,
            length,
            oldest,
            ready,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, length: u64, oldest: u64) -> Extent {
        Extent {
            offset,
            length,
            oldest,
            ready: oldest,
        }
    }

    #[test]
    fn what_touches_or_overlaps_is_one_extent_with_the_oldest_number() {
        let mut dirty = Dirty::default();
        for (offset, number) in [(0, 5), (200, 6), (100, 7), (50, 8)] {
            dirty.insert(extent(offset, 100, number));
        }
        assert_eq!(dirty.from(0).collect::<Vec<_>>(), [extent(0, 300, 5)]);
        assert_eq!((dirty.bytes(), dirty.oldest()), (300, Some(5)));
    }

    #[test]
    fn bytes_are_those_of_a_slow_map_of_every_byte() {
        let mut dirty = Dirty::default();
        let mut slow = [false; 256];
        let mut word = 1_u64;
        for number in 0..500 {
            word = word.wrapping_mul(6364136223846793005).wrapping_add(1);
            let (offset, length) = ((word >> 40) % 240, 1 + (word >> 50) % 16);
            if number % 3 == 2 {
                let first = dirty.from(offset).next();
                if let Some(first) = first {
                    let taken = dirty.take(first.offset, length).unwrap();
                    for byte in taken.offset..taken.offset + taken.length {
                        assert!(std::mem::take(&mut slow[byte as usize]));
                    }
                }
            } else {
                dirty.insert(extent(offset, length, number));
                (offset..offset + length).for_each(|byte| slow[byte as usize] = true);
            }
            let wanted = slow.iter().filter(|dirty| **dirty).count() as u64;
            assert_eq!(dirty.bytes(), wanted);
        }
    }

    #[test]
    fn the_arm_comes_by_what_lies_inwards_first() {
        let mut dirty = Dirty::default();
        for offset in [10, 30, 50] {
            dirty.insert(extent(offset, 5, 1));
        }
        let order: Vec<u64> = dirty.from(30).map(|e| e.offset).collect();
        assert_eq!(order, [30, 50, 10]);
        dirty.take(30, 2);
        assert_eq!(dirty.from(30).next(), Some(extent(32, 3, 1)));
    }
}
