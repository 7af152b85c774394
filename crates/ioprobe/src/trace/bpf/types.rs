//! The kernel's type information (BTF): offsets of structure members, and type ids of tracepoints.
//!
//! Both differ from kernel to kernel and are never assumed. The format is that of
//! Documentation/bpf/btf.rst: a header, type records one after the other, numbered from 1, and
//! their names.

use std::collections::HashSet;
use std::ops::Range;

use crate::error::{Doing, Error, Result};

const OWN: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;

/// Kinds of types.
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;

pub struct Types {
    blob: Vec<u8>,
    /// The offset of each type; the first is void.
    starts: Vec<usize>,
    names: Range<usize>,
}

impl Types {
    pub fn of_kernel() -> Result<Self> {
        Types::parse(std::fs::read(OWN).doing(|| format!("read {OWN}"))?)
            .ok_or_else(|| Error::unsupported(format!("{OWN}: not valid BTF type information")))
    }

    pub fn parse(blob: Vec<u8>) -> Option<Self> {
        let magic = u16::from_le_bytes(blob.get(..2)?.try_into().ok()?);
        if magic != MAGIC {
            return None;
        }
        let field = |at| word(&blob, at).map(|n| n as usize);
        let header = field(4)?;
        let section = |offset, length| {
            let first = header.checked_add(field(offset)?)?;
            let end = first.checked_add(field(length)?)?;
            (end <= blob.len()).then_some(first..end)
        };
        let (types, names) = (section(8, 12)?, section(16, 20)?);
        let (mut starts, mut at) = (vec![0], types.start);
        while at < types.end {
            starts.push(at);
            at += 12 + following(word(&blob, at + 4)?)?;
        }
        (at == types.end).then_some(Types {
            blob,
            starts,
            names,
        })
    }

    /// Return the id of the type that describes the arguments of a tracepoint.
    pub fn tracepoint(&self, name: &str) -> Result<u32> {
        self.find(TYPEDEF, &format!("btf_trace_{name}"))
            .ok_or_else(|| Error::unsupported(format!("this kernel has no tracepoint {name}")))
    }

    /// Return the offset of a member in a structure, in bytes. Anonymous structures inside it are
    /// searched too.
    pub fn offset(&self, structure: &str, member: &str) -> Result<i16> {
        self.find(STRUCT, structure)
            .and_then(|id| self.offset_in(id, member))
            .filter(|bits| bits % 8 == 0)
            .and_then(|bits| i16::try_from(bits / 8).ok())
            .ok_or_else(|| {
                Error::unsupported(format!("this kernel's {structure} has no member {member}"))
            })
    }

    fn find(&self, kind: u32, name: &str) -> Option<u32> {
        (1..self.starts.len())
            .find(|id| {
                let at = self.starts[*id];
                word(&self.blob, at + 4).is_some_and(|info| info >> 24 & 31 == kind)
                    && self.is_called(at, name)
            })
            .map(|id| id as u32)
    }

    fn is_called(&self, record: usize, name: &str) -> bool {
        word(&self.blob, record)
            .and_then(|at| self.blob[self.names.clone()].get(at as usize..))
            .is_some_and(|rest| {
                rest.starts_with(name.as_bytes()) && rest.get(name.len()) == Some(&0)
            })
    }

    /// Return the offset in bits. Each anonymous type is searched once, however often it occurs in
    /// others or in itself.
    fn offset_in(&self, id: u32, member: &str) -> Option<u32> {
        let (mut left, mut seen) = (vec![(id, 0_u32)], HashSet::new());
        while let Some((id, begin)) = left.pop() {
            if !seen.insert(id) {
                continue;
            }
            for entry in self.members(id) {
                let at = begin.checked_add(entry.offset)?;
                if self.is_called(entry.record, member) {
                    return Some(at);
                }
                if entry.name == 0 {
                    left.push((entry.kind, at));
                }
            }
        }
        None
    }

    /// Return the members of a structure or union; other types have none.
    fn members(&self, id: u32) -> impl Iterator<Item = Member> + '_ {
        let at = self.starts.get(id as usize).copied().unwrap_or(0);
        let info = match word(&self.blob, at + 4) {
            Some(info) if id > 0 && matches!(info >> 24 & 31, STRUCT | UNION) => info,
            _ => 0,
        };
        let has_bit_fields = info >> 31 == 1;
        (0..info as usize & 0xffff).map_while(move |index| {
            let record = at + 12 + index * 12;
            let offset = word(&self.blob, record + 8)?;
            Some(Member {
                record,
                name: word(&self.blob, record)?,
                kind: word(&self.blob, record + 4)?,
                offset: if has_bit_fields {
                    offset & 0xff_ffff
                } else {
                    offset
                },
            })
        })
    }
}

/// A member of a structure: the position of its record, its name and type, and its offset in bits.
struct Member {
    record: usize,
    name: u32,
    kind: u32,
    offset: u32,
}

/// Return the number of bytes after the 12 that every record has, by kind and number of entries.
fn following(info: u32) -> Option<usize> {
    let entries = (info & 0xffff) as usize;
    Some(match info >> 24 & 31 {
        1 | 14 | 17 => 4,                            // int, variable, declaration tag
        2 | 7 | 8 | 9 | 10 | 11 | 12 | 16 | 18 => 0, // pointers, forward declarations, typedefs, qualifiers, functions, floats, type tags
        3 => 12,                                     // array
        STRUCT | UNION | 15 | 19 => entries * 12,    // and sections, 64-bit enumerations
        6 | 13 => entries * 8,                       // enumeration, function prototype
        _ => return None,
    })
}

fn word(blob: &[u8], at: usize) -> Option<u32> {
    let bytes = blob.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Build the types of a map's key and value for the kernel: an int (type 1), and a structure of
/// whole words (2).
pub fn of_map(words: u32) -> Vec<u8> {
    let names = b"\0word\0state\0w\0";
    let mut types: Vec<u32> = vec![1, 1 << 24, 4, 32]; // int, 4 bytes, 32 bits
    types.extend([6, STRUCT << 24 | words, 4 * words]);
    for index in 0..words {
        types.extend([0, 1, 32 * index]); // members may be anonymous
    }
    let length = 4 * types.len() as u32;
    let header = [
        u32::from(MAGIC) | 1 << 16,
        24,
        0,
        length,
        length,
        names.len() as u32,
    ];
    header
        .iter()
        .chain(&types)
        .flat_map(|n| n.to_le_bytes())
        .chain(names.iter().copied())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::damaged;

    #[test]
    fn members_of_our_own_type_are_where_they_were_put() {
        let types = Types::parse(of_map(6)).unwrap();
        assert_eq!(types.find(STRUCT, "state"), Some(2));
        assert!(types.offset("state", "nothing").is_err());
        assert!(types.offset("nothing", "w").is_err());
    }

    #[test]
    fn what_is_cut_off_is_no_type_information() {
        let whole = of_map(6);
        for length in 0..whole.len() {
            assert!(Types::parse(whole[..length].to_vec()).is_none(), "{length}");
        }
    }

    fn kept(name: &str) -> Types {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/cases/types");
        Types::parse(std::fs::read(format!("{cases}/{name}")).unwrap()).unwrap()
    }

    /// struct outer { int a; union { struct { int x, deep; }; int y; } at 8; } with bit fields, and
    /// nested in itself.
    #[test]
    fn members_of_what_has_no_name_are_found_where_they_lie() {
        let types = kept("nested");
        let places = ["a", "x", "deep", "y"].map(|member| types.offset("outer", member).unwrap());
        assert_eq!(places, [0, 8, 12, 8]);
        assert!(types.offset("outer", "z").is_err());
    }

    /// Some types of a real kernel.
    #[test]
    fn two_pointers_lie_side_by_side() {
        let types = kept("kernel");
        let places = ["next", "prev"].map(|member| types.offset("list_head", member).unwrap());
        assert_eq!(places, [0, 8]);
        assert!(types.tracepoint("sys_enter").is_ok());
        assert!(types.tracepoint("sys_ente").is_err());
    }

    #[test]
    fn a_structure_that_is_itself_65535_times_is_looked_through_once() {
        let names = b"\0s\0";
        let members = 0xffff_u32;
        let mut types = vec![1, STRUCT << 24 | members, 8];
        for _ in 0..members {
            types.extend([0, 1, 0]); // no name, of type 1, at 0
        }
        let length = 4 * types.len() as u32;
        let header = [u32::from(MAGIC) | 1 << 16, 24, 0, length, length, 3];
        let words = header.iter().chain(&types);
        let blob = words.flat_map(|n| n.to_le_bytes()).chain(*names);
        let types = Types::parse(blob.collect()).unwrap();
        assert!(types.offset("s", "m").is_err());
    }

    #[test]
    fn damage_to_the_types_of_this_kernel_is_survived() {
        let whole = match std::fs::read(OWN) {
            Ok(whole) => whole,
            Err(_) => return,
        };
        for number in 0..30 {
            if let Some(types) = Types::parse(damaged(&whole, number)) {
                let _ = (
                    types.offset("task_struct", "pending"),
                    types.tracepoint("sys_exit"),
                );
            }
        }
    }
}
