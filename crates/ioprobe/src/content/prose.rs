//! Words that compress like a text in a natural language: their frequency falls with their rank as Zipf's law has it, and
//! every second one is among four that often follow the one before.

use super::{mix, word};

/// So many bytes are made at once, whatever part of them is wanted; a word is cut at their end.
pub const PARAGRAPH: usize = 4096;
const LONGEST_WORD: usize = 9;

/// Paragraph `number` (from 0) of the stream of `key`.
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

/// The word of this rank, the most frequent being 0: the rarer, the longer.
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
