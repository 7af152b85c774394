//! The part of a device to read, and the order: from a position onwards, or random blocks of a
//! part.

use std::os::unix::io::{AsRawFd, OwnedFd};

use crate::content::mix;
use crate::error::{Error, Result};
use crate::protocol::StreamJob;

/// Positions are multiples of this, which is aligned for direct I/O on every device.
const UNIT: u64 = 4096;
/// Seed of the random block order, the same for every position.
const SEED: u64 = 1;

#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    pub blocks: u64,
    /// The first byte that may be read, and the one after the last.
    first: u64,
    pub end: u64,
    /// The offset of each block, drawn from the part; None: sequential.
    pub places: Option<Vec<u64>>,
    /// Blocks to read before the clock starts, so that the disk head is already at the position.
    pub lead_in: Vec<u64>,
}

impl Part {
    /// Choose the blocks to read. Whole blocks only: hdparm never reads the rest of a device.
    /// Sequential reads end at the last block of the part; random reads may visit more blocks than
    /// it has.
    pub fn of(own: &StreamJob, size: u64) -> Result<Self> {
        let block = own.block_size as u64;
        let at = (size as f64 * own.position) as u64 / UNIT * UNIT;
        let lead = own.lead_in / block;
        let first = match own.within {
            Some(_) => at,
            None => at.saturating_add(own.lead_in).min(size),
        };
        let left = size - first;
        let part = match own.within {
            Some(share) => left.min((size as f64 * share) as u64),
            None => left,
        };
        let there = part / block;
        let wanted = own.volume.map_or(there, |volume| volume / block);
        let blocks = match own.within {
            Some(_) => wanted,
            None => wanted.min(there),
        };
        if blocks == 0 || there == 0 {
            return Err(Error::bad(format!(
                "request stream: expected at least one block of {block} bytes on the device after byte {first}, found {part} bytes"
            )));
        }
        let place = |n: u64| {
            let draw = mix(mix(SEED) ^ mix(n + 1)) >> 32;
            first + ((draw * there) >> 32) * block
        };
        let lead_in = match own.within {
            Some(_) => (blocks..blocks.saturating_add(lead)).map(place).collect(),
            None => (0..lead).map(|n| at + n * block).collect(),
        };
        let places = own.within.map(|_| (0..blocks).map(place).collect());
        let end = first + there * block;
        Ok(Part {
            blocks,
            first,
            end: match places {
                Some(_) => end,
                None => first + blocks * block,
            },
            places,
            lead_in,
        })
    }

    /// Seek to the position where a sequential read starts.
    pub fn go_to(&self, opened: &OwnedFd) -> Result<()> {
        // SAFETY: no pointers are involved.
        match unsafe { libc::lseek(opened.as_raw_fd(), self.first as i64, libc::SEEK_SET) } {
            -1 => Err(Error::last_os(format!(
                "seek to byte {} of the device",
                self.first
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::fields;
    use serde_json::json;

    fn part(position: f64, within: Option<f64>, volume: Option<u64>, size: u64) -> Result<Part> {
        let request = json!({
            "operation": "read", "device": "loop0", "position": position, "within": within,
            "block_size": 4096, "volume": volume,
        });
        let request = request.as_object().cloned().unwrap_or_default();
        Part::of(&fields("stream", request)?, size)
    }

    #[test]
    fn from_a_position_there_is_as_much_as_is_left() {
        let size = 1 << 20;
        let found = part(0.75, None, None, size).unwrap();
        assert_eq!((found.first, found.blocks, found.end), (3 << 18, 64, size));
        let found = part(0.99, None, Some(8192), size).unwrap();
        // 1,038,090 of 1,048,576, rounded down to a multiple of 4096
        assert_eq!((found.first, found.blocks), (1_036_288, 2));
        assert_eq!(part(0.0, None, None, size).unwrap().blocks, 256);
        assert_eq!(part(0.75, None, Some(size), size).unwrap().end, size);
    }

    #[test]
    fn drawn_blocks_lie_in_their_part_and_are_the_same_ones_at_every_position() {
        let size = 1 << 24;
        let near = part(0.0, Some(0.25), Some(1000 * 4096), size).unwrap();
        let far = part(0.5, Some(0.25), Some(1000 * 4096), size).unwrap();
        let (near, far) = (near.places.unwrap(), far.places.unwrap());
        assert_eq!(near.len(), 1000);
        assert!(near
            .iter()
            .all(|place| place % 4096 == 0 && *place < size / 4));
        assert!(near.iter().zip(&far).all(|(a, b)| a + size / 2 == *b));
        let mut distinct = near;
        distinct.sort_unstable();
        distinct.dedup();
        // 1000 draws with replacement from 1024 places reach 1024 (1 - e^(-1000/1024)) = 638.
        assert!((600..680).contains(&distinct.len()), "{}", distinct.len());
    }

    #[test]
    fn what_leads_in_is_read_before_and_is_no_part_of_what_is_timed() {
        let size = 1 << 24;
        let request = |within: Option<f64>| {
            json!({"operation": "read", "device": "loop0", "position": 0.5, "within": within, "lead_in": 8192,
                "block_size": 4096, "volume": 16384})
        };
        let of = |within| {
            let request = request(within).as_object().cloned().unwrap_or_default();
            Part::of(&fields("stream", request).unwrap(), size).unwrap()
        };
        let order = of(None);
        assert_eq!(order.lead_in, [size / 2, size / 2 + 4096]);
        assert_eq!((order.first, order.blocks), (size / 2 + 8192, 4));
        let drawn = of(Some(0.25));
        assert_eq!((drawn.lead_in.len(), drawn.blocks), (2, 4));
        assert!(drawn
            .lead_in
            .iter()
            .all(|place| (size / 2..size / 4 * 3).contains(place)));
        // The timed places are the same as without a lead-in.
        assert_eq!(
            drawn.places,
            part(0.5, Some(0.25), Some(16384), size).unwrap().places
        );
    }

    #[test]
    fn nothing_to_read_is_refused() {
        assert!(part(0.0, None, None, 4095).is_err());
        assert!(part(0.9, None, None, 5000).is_err());
        assert!(part(0.5, Some(0.0001), None, 1 << 20).is_err());
        assert!(part(0.0, None, Some(100), 1 << 20).is_err());
    }
}
