//! Damaged input for tests of parsers: truncated, bits flipped, lengths made huge. Deterministic.

use crate::content::word;

/// Typical wrong values of lengths, counts and offsets.
const WORDS: [u32; 10] = [
    0,
    1,
    7,
    8,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff8,
    0xffff_ffff,
];

/// Return variant `number` of some bytes, damaged in one to four ways.
pub fn damaged(whole: &[u8], number: u64) -> Vec<u8> {
    let mut drawn = 0;
    let mut below = |limit: usize| {
        drawn += 1;
        (word(number, drawn) % limit.max(1) as u64) as usize
    };
    let mut bytes = whole.to_vec();
    for _ in 0..1 + below(4) {
        let length = bytes.len();
        // Headers matter most: half of all damage hits the first bytes.
        let near = if below(2) == 0 { 64 } else { length };
        let at = below(near.min(length));
        let end = (at + 1 + below(32)).min(length);
        match below(8) {
            0 => bytes.truncate(below(length + 1)),
            1 => bytes.truncate(length - length.min(1 + below(16))),
            2 if at < length => bytes[at] ^= 1 << below(8),
            3 if at < length => bytes[at] = [0, 0x7f, 0x80, 0xff][below(4)],
            4 => {
                let at = at & !3;
                if let Some(place) = bytes.get_mut(at..at + 4) {
                    place.copy_from_slice(&WORDS[below(WORDS.len())].to_le_bytes());
                }
            }
            5 if at < end => drop(bytes.drain(at..end)),
            6 if at < end => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => bytes.extend((0..below(24)).map(|_| below(256) as u8).collect::<Vec<_>>()),
        }
    }
    bytes
}
