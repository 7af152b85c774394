//! The content of a set's files: a function of (seed, index, offset) only.
//!
//! So any file can be created, verified or continued at any size and offset without keeping a copy.
//! Words come from the finaliser of SplitMix64 (Steele, Lea, Flood 2014) over a counter, keyed by
//! seed and index.

mod code;

pub use crate::protocol::Content as Kind;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
/// A line of text: 63 digits and a newline, made from four words.
const LINE: usize = 64;

#[derive(Clone, Copy, Debug)]
pub struct Content {
    pub kind: Kind,
    pub seed: u64,
}

impl Content {
    /// Fill `buffer` with the content of file `index` from `offset` on.
    pub fn fill(&self, index: u32, offset: u64, buffer: &mut [u8]) {
        match self.kind {
            Kind::Zeros => buffer.fill(0),
            Kind::Random => {
                fill_by::<8>(buffer, offset, |n| word(self.key(index), n).to_le_bytes())
            }
            Kind::Text => fill_by::<LINE>(buffer, offset, |n| text_line(self.key(index), n)),
            Kind::Words => {
                fill_by::<{ PARAGRAPH }>(buffer, offset, |n| paragraph(self.key(index), n))
            }
            Kind::C => {
                fill_by::<{ code::UNIT }>(buffer, offset, |n| code::unit(self.key(index), index, n))
            }
        }
    }

    /// Return the byte of file `index` at `offset`.
    pub fn byte(&self, index: u32, offset: u64) -> u8 {
        let mut byte = [0];
        self.fill(index, offset, &mut byte);
        byte[0]
    }

    /// Return the eight bytes from `offset` on as a little-endian number; fast at the start of
    /// blocks.
    pub fn head(&self, index: u32, offset: u64) -> u64 {
        match self.kind {
            Kind::Zeros => 0,
            Kind::Random if offset % 8 == 0 => word(self.key(index), offset / 8),
            _ => {
                let mut bytes = [0; 8];
                self.fill(index, offset, &mut bytes);
                u64::from_le_bytes(bytes)
            }
        }
    }

    fn key(&self, index: u32) -> u64 {
        key(self.seed, index)
    }
}

/// Return the key of the words of file `index`.
pub fn key(seed: u64, index: u32) -> u64 {
    mix(seed ^ mix(u64::from(index).wrapping_add(GOLDEN)))
}

/// Return word `n` (from 0) of the stream of `key`.
#[inline(always)]
pub fn word(key: u64, n: u64) -> u64 {
    mix(key.wrapping_add(n.wrapping_add(1).wrapping_mul(GOLDEN)))
}

/// The finaliser of SplitMix64.
#[inline(always)]
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Generate line `n` (from 0): the digits of four words, lowest nibble first, the last one replaced
/// by a newline.
fn text_line(key: u64, n: u64) -> [u8; LINE] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut line = [0; LINE];
    for (part, digits) in line.chunks_exact_mut(16).enumerate() {
        let mut bits = word(key, n * 4 + part as u64);
        for digit in digits {
            *digit = DIGITS[(bits & 15) as usize];
            bits >>= 4;
        }
    }
    line[LINE - 1] = b'\n';
    line
}

/// Fill the buffer from a stream of pieces of N bytes, starting inside a piece if the offset does.
fn fill_by<const N: usize>(buffer: &mut [u8], offset: u64, piece: impl Fn(u64) -> [u8; N]) {
    let mut number = offset / N as u64;
    let skip = (offset % N as u64) as usize;
    let head = buffer.len().min((N - skip) % N);
    let (first, rest) = buffer.split_at_mut(head);
    if head > 0 {
        first.copy_from_slice(&piece(number)[skip..skip + head]);
        number += 1;
    }
    for part in rest.chunks_mut(N) {
        part.copy_from_slice(&piece(number)[..part.len()]);
        number += 1;
    }
}

// Words that compress like natural language text: frequencies follow Zipf's law, and every second
// word is one of four frequent followers of the previous word.

/// Number of bytes generated at once, whichever part of them is needed; a word is cut at their end.
pub const PARAGRAPH: usize = 4096;
const LONGEST_WORD: usize = 9;

/// Generate paragraph `number` (from 0) of the stream of `key`.
pub fn paragraph(key: u64, number: u64) -> [u8; PARAGRAPH] {
    let mut text = String::with_capacity(PARAGRAPH + LONGEST_WORD + 2);
    let (mut before, mut at) = (0, 0);
    while text.len() < PARAGRAPH {
        let bits = word(key, number * PARAGRAPH as u64 + at);
        at += 1;
        let rank = if bits & 7 < 4 || before == 0 {
            let octave = (bits >> 3) % 13;
            (1 << octave) - 1 + ((bits >> 8) & ((1 << octave) - 1))
        } else {
            let follower = mix(before * 4 + ((bits >> 3) & 3));
            ((follower >> 8) & 4095) >> (follower % 13)
        };
        before = rank + 1;
        push_word(&mut text, rank);
        text.push_str(if bits >> 60 == 0 { ". " } else { " " });
    }
    let mut paragraph = [b'\n'; PARAGRAPH];
    paragraph[..PARAGRAPH - 1].copy_from_slice(&text.as_bytes()[..PARAGRAPH - 1]);
    paragraph
}

/// Append the word of this rank, the most frequent being 0: the rarer, the longer.
pub fn push_word(text: &mut String, rank: u64) {
    const BEGIN: &[u8; 16] = b"bdfghklmnprstvwz";
    const VOWEL: &[u8; 8] = b"aeiouaei";
    const END: [&str; 4] = ["", "n", "s", "t"];
    let mut bits = mix(rank + 1);
    let syllables = [8, 256, 1024].iter().filter(|from| rank >= **from).count() + 1;
    for _ in 0..syllables {
        text.push(BEGIN[(bits & 15) as usize].into());
        text.push(VOWEL[(bits >> 4 & 7) as usize].into());
        bits >>= 7;
    }
    text.push_str(END[(bits & 3) as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(kind: Kind, seed: u64, index: u32, offset: u64, length: usize) -> Vec<u8> {
        let mut buffer = vec![0xff; length];
        Content { kind, seed }.fill(index, offset, &mut buffer);
        buffer
    }

    #[test]
    fn words_are_those_of_the_published_splitmix64() {
        // The first outputs of SplitMix64 from state 1234567, as widely published.
        assert_eq!(word(1_234_567, 0), 6_457_827_717_110_365_317);
        assert_eq!(word(1_234_567, 1), 3_203_168_211_198_807_973);
        assert_eq!(word(1_234_567, 2), 9_817_491_932_198_370_423);
    }

    #[test]
    fn the_content_of_old_sets_stays_what_it_was() {
        let text = String::from_utf8(content(Kind::Text, 1, 0, 0, 64)).unwrap();
        assert_eq!(text, PINNED_TEXT);
        assert_eq!(content(Kind::Random, 7, 3, 0, 8), PINNED_RANDOM);
    }

    #[test]
    fn every_part_of_a_file_is_the_part_of_the_whole() {
        for kind in [Kind::Text, Kind::Random, Kind::Zeros, Kind::Words, Kind::C] {
            let whole = content(kind, 42, 5, 0, 9000);
            for offset in [0, 1, 7, 8, 9, 63, 64, 65, 500, 1023, 1024, 4097] {
                for length in [0, 1, 3, 7, 8, 64, 65, 400, 4800] {
                    let part = content(kind, 42, 5, offset as u64, length);
                    assert_eq!(
                        part,
                        whole[offset..offset + length],
                        "{kind:?} {offset} {length}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_head_of_a_block_is_its_first_eight_bytes() {
        for kind in [Kind::Text, Kind::Random, Kind::Zeros] {
            for offset in [0, 8, 12, 4096] {
                let wanted = content(kind, 42, 5, offset, 8);
                let head = Content { kind, seed: 42 }.head(5, offset);
                assert_eq!(head.to_le_bytes(), wanted[..], "{kind:?} {offset}");
            }
        }
    }

    #[test]
    fn text_is_lines_of_hexadecimal_digits() {
        let text = content(Kind::Text, 9, 1, 0, 6400);
        for line in text.chunks(64) {
            assert!(line[..63].iter().all(|c| b"0123456789abcdef".contains(c)));
            assert_eq!(line[63], b'\n');
        }
    }

    #[test]
    fn files_and_seeds_differ() {
        let base = content(Kind::Random, 1, 1, 0, 64);
        assert_ne!(base, content(Kind::Random, 1, 2, 0, 64));
        assert_ne!(base, content(Kind::Random, 2, 1, 0, 64));
    }

    // From an implementation in Python of the description at the top of this file.
    const PINNED_TEXT: &str = "1af07ce003a16c5887b0fe1e6a2c2594b488953813e1f03f3cde74a31351c1d\n";
    const PINNED_RANDOM: [u8; 8] = [211, 172, 72, 155, 65, 37, 158, 100];
}

#[cfg(test)]
mod prose_tests {
    use super::*;

    #[test]
    fn a_paragraph_is_words_of_which_few_are_most() {
        let text = paragraph(7, 3);
        assert_eq!(text[PARAGRAPH - 1], b'\n');
        let text = std::str::from_utf8(&text[..PARAGRAPH - 1]).unwrap();
        assert!(text
            .chars()
            .all(|c| c.is_ascii_lowercase() || " .".contains(c)));
        let words: Vec<&str> = text.split([' ', '.']).filter(|w| !w.is_empty()).collect();
        let mut kinds = words.clone();
        kinds.sort_unstable();
        kinds.dedup();
        assert!(words.iter().all(|word| word.len() <= LONGEST_WORD));
        assert!(
            kinds.len() * 2 < words.len(),
            "{} of {}",
            kinds.len(),
            words.len()
        );
    }
}
