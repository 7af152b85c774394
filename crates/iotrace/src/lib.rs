//! Recorded file operations of an application: the format of `.iotrace` files.
//!
//! # Layout
//!
//! A trace is the magic number, the version (two bytes, little-endian), and blocks. A block is the
//! length of its payload (four bytes), the payload's CRC-32 (four bytes), and the payload. The first
//! payload is the header. Each later one has whole records, and starts where the one before it
//! ended: what a record is relative to may be in an earlier block.
//!
//! Numbers are variable-length: seven bits a byte, the lowest first. Numbers that may be negative,
//! and differences, are folded so that small ones stay short. Strings have their length before them.
//!
//! # Contract
//!
//! - A file or thread has its record before its first use. Numbers of files and threads are dense
//!   and in the order of their records. Numbers of handles are dense and in the order of first use.
//! - Operations are in the order in which they ended.
//! - A trace without an end record was cut off. It can be read up to there.
//!
//! The reader checks all of this, and never allocates by a number that the file claims.

pub mod bars;
mod error;
pub mod iolog;
mod read;
mod record;
mod state;
pub mod summary;
mod write;

pub use error::{Error, Problem, Result};
pub use read::Reader;
pub use record::{Call, End, FileKind, FileRecord, Header, Op, Record, Target, ThreadRecord};
pub use write::Writer;

pub const MAGIC: [u8; 8] = *b"iotrace\n";
pub const VERSION: u16 = 2;
/// What a file name of a trace ends with.
pub const EXTENSION: &str = "iotrace";

/// Bytes of a path.
pub const MAX_PATH: usize = 4096;
pub const MAX_FILES: u32 = 1 << 20;
pub const MAX_THREADS: u32 = 4096;
pub const MAX_OPERATIONS: u64 = 1 << 27;
/// Bytes of a string, such as a thread's name or one argument of the command.
pub const MAX_STRING: usize = 1 << 16;
/// Bytes of a payload. Only a header comes near it.
pub const MAX_BLOCK: usize = 1 << 20;
/// A block is written as soon as it has this many bytes.
const FULL_BLOCK: usize = 1 << 16;

#[cfg(any(test, feature = "made"))]
pub mod made;
#[cfg(test)]
mod tests;
