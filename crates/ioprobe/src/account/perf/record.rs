//! Records of perf events as they lie in a buffer: a header of 8 bytes, the last two of which are the length of the whole.
//!
//! The layout is that of include/uapi/linux/perf_event.h, with the fields that `ring` asks for.

const HEADER: usize = 8;

/// One record, as far as it matters here. Tasks are numbered as in our own PID namespace.
#[derive(Debug, PartialEq, Eq)]
pub enum Record<'a> {
    Sample {
        process: u32,
        task: u32,
        at_ns: u64,
        raw: &'a [u8],
        compat: bool,
    },
    Fork {
        process: u32,
        task: u32,
        parent: u32,
        at_ns: u64,
    },
    Exit {
        process: u32,
        task: u32,
        at_ns: u64,
    },
    Lost(u64),
    Other,
}

/// The records in bytes that were taken out of a buffer. None stands for one that is cut off or too short for its kind; where
/// nobody can say how long one is, it is the last.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Option<Record<'_>>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let size: usize = rest
            .get(6..HEADER)
            .map_or(0, |size| u16::from_le_bytes([size[0], size[1]]).into());
        if !(HEADER..=rest.len()).contains(&size) {
            rest = &[];
            return Some(None);
        }
        let (one, more) = rest.split_at(size);
        rest = more;
        Some(parse(one))
    })
}

fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    const ABI_32: u64 = 1;
    Some(match word(0)? {
        9 => {
            let length = word(24)? as usize;
            let raw = bytes.get(28..28_usize.checked_add(length)?)?;
            Record::Sample {
                process: word(8)?,
                task: word(12)?,
                at_ns: long(16)?,
                raw,
                compat: long(28 + length)? == ABI_32,
            }
        }
        7 => Record::Fork {
            process: word(8)?,
            task: word(16)?,
            parent: word(20)?,
            at_ns: long(24)?,
        },
        4 => Record::Exit {
            process: word(8)?,
            task: word(16)?,
            at_ns: long(24)?,
        },
        2 => Record::Lost(long(16)?),
        _ => Record::Other,
    })
}
