//! Why a trace cannot be read or written.

use std::fmt;
use std::io;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub struct Error {
    /// Bytes from the start of the trace to the block or record in question.
    pub offset: u64,
    pub problem: Problem,
}

#[derive(Debug)]
pub enum Problem {
    Io(io::Error),
    NotATrace,
    Version(u16),
    /// There is no end record.
    CutOff,
    BlockLength(u64),
    Checksum,
    /// No record starts with this byte.
    Tag(u8),
    /// A number or string ends after its block.
    Short,
    /// A number has more bits than its field.
    Number(&'static str),
    Text(&'static str),
    /// The path is absolute, or has an empty part, `.`, `..` or a zero byte.
    Path(String),
    /// More than the format allows.
    Limit {
        what: &'static str,
        most: u64,
    },
    /// Not the next number.
    Dense {
        what: &'static str,
        number: u64,
        next: u64,
    },
    /// No record has this number.
    Unknown {
        what: &'static str,
        number: u64,
    },
    /// An operation ended before the one in front of it.
    Order {
        end_ns: u64,
        before_ns: u64,
    },
    Count {
        claimed: u64,
        counted: u64,
    },
    /// Something follows the end record.
    AfterEnd,
}

impl Error {
    /// Return whether the trace was cut off: what was read before is valid.
    pub fn is_cut_off(&self) -> bool {
        matches!(self.problem, Problem::CutOff)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.problem)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Io(error) => write!(f, "{error}"),
            Problem::NotATrace => write!(f, "not an .iotrace file"),
            Problem::Version(version) => write!(
                f,
                "the trace has version {version}, and only version {} can be read",
                crate::VERSION
            ),
            Problem::CutOff => write!(f, "the trace is cut off: it has no end record"),
            Problem::BlockLength(length) => write!(
                f,
                "a block of {length} bytes, expected 1 to {}",
                crate::MAX_BLOCK
            ),
            Problem::Checksum => write!(f, "the block's checksum does not match"),
            Problem::Tag(tag) => write!(f, "no record starts with the byte {tag:#04x}"),
            Problem::Short => write!(f, "a record goes beyond its block"),
            Problem::Number(what) => write!(f, "{what}: the number is too large"),
            Problem::Text(what) => write!(f, "{what}: not UTF-8"),
            Problem::Path(path) => write!(
                f,
                "the path {path:?} is not plain: it must be relative, without empty parts, . and .."
            ),
            Problem::Limit { what, most } => write!(f, "{what}: more than {most}"),
            Problem::Dense { what, number, next } => {
                write!(f, "{what} {number}, expected {next}")
            }
            Problem::Unknown { what, number } => write!(f, "{what} {number} has no record"),
            Problem::Order { end_ns, before_ns } => write!(
                f,
                "an operation ended at {end_ns} ns, and the one in front of it at {before_ns} ns"
            ),
            Problem::Count { claimed, counted } => write!(
                f,
                "the end record counts {claimed} operations, and there are {counted}"
            ),
            Problem::AfterEnd => write!(f, "something follows the end record"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        match error.problem {
            Problem::Io(error) => error,
            _ => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}
