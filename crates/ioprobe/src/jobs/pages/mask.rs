//! What two bodies are compared by: a number that stands for all that is the same each time.
//!
//! A page may hold something that is new with every request: a token, a date. A pattern such as `value="*"` leaves out what
//! stands between its texts; each `*` is the shortest run of bytes to the next text.

use crate::error::{Error, Result};

/// Texts between which something is left out: at least two.
pub struct Pattern {
    texts: Vec<Vec<u8>>,
}

impl Pattern {
    pub fn parse(text: &str) -> Result<Self> {
        let texts: Vec<Vec<u8>> = text
            .split('*')
            .map(|part| part.as_bytes().to_vec())
            .collect();
        if texts.len() < 2 || texts.iter().any(Vec::is_empty) {
            return Err(Error::bad(format!(
                "request pages: ignore: wanted texts with * between them, found {text:.100?}"
            )));
        }
        Ok(Pattern { texts })
    }

    /// The body without what stands between the texts, wherever all of them follow each other.
    fn masked(&self, body: &[u8]) -> Vec<u8> {
        let mut kept = Vec::with_capacity(body.len());
        let mut rest = body;
        while let Some((next, holes)) = self.matched(rest) {
            let mut from = 0;
            for (start, end) in holes {
                kept.extend_from_slice(&rest[from..start]);
                kept.push(0); // that something was there stays to be seen
                from = end;
            }
            kept.extend_from_slice(&rest[from..next]);
            rest = &rest[next..];
        }
        kept.extend_from_slice(rest);
        kept
    }

    /// The end of the first match, and what in it is left out. A text that is nowhere in the rest is in no later rest either,
    /// so all matches of a body are found in one passage.
    fn matched(&self, body: &[u8]) -> Option<(usize, Vec<(usize, usize)>)> {
        let mut at = find(body, &self.texts[0])? + self.texts[0].len();
        let mut holes = Vec::with_capacity(self.texts.len() - 1);
        for text in &self.texts[1..] {
            let hole = (at, at + find(&body[at..], text)?);
            holes.push(hole);
            at = hole.1 + text.len();
        }
        Some((at, holes))
    }
}

fn find(body: &[u8], text: &[u8]) -> Option<usize> {
    body.windows(text.len()).position(|window| window == text)
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo), of what is left of the body: against accident, not against malice.
pub fn mark(body: &[u8], ignore: &[Pattern]) -> u64 {
    let masked = ignore
        .iter()
        .fold(None, |masked: Option<Vec<u8>>, pattern| {
            Some(pattern.masked(masked.as_deref().unwrap_or(body)))
        });
    let bytes = masked.as_deref().unwrap_or(body);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(pattern: &str, body: &str) -> String {
        let found = Pattern::parse(pattern).unwrap().masked(body.as_bytes());
        String::from_utf8(found).unwrap().replace('\0', "~")
    }

    #[test]
    fn what_stands_between_the_texts_is_left_out_everywhere() {
        assert_eq!(
            masked("t=\"*\"", "a t=\"12\" b t=\"\" c"),
            "a t=\"~\" b t=\"~\" c"
        );
        assert_eq!(masked("<*,*>", "<1,22> <3 <4,5>"), "<~,~> <~,~>");
        assert_eq!(masked("<*>", "no end <"), "no end <");
    }

    #[test]
    fn the_mark_is_the_published_hash_of_what_is_left() {
        // Test vectors of the FNV reference code.
        assert_eq!(mark(b"", &[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(mark(b"foobar", &[]), 0x8594_4171_f739_67e8);
        let ignore = [
            Pattern::parse("[*]").unwrap(),
            Pattern::parse("(*)").unwrap(),
        ];
        assert_eq!(mark(b"a [1] (2)", &ignore), mark(b"a [99] (0)", &ignore));
        assert_ne!(mark(b"a [1] b", &ignore), mark(b"a [1] c", &ignore));
    }

    #[test]
    fn a_pattern_needs_a_text_on_each_side() {
        for text in ["", "*", "a*", "*a", "a**b", "plain"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
