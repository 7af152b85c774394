//! The part of the FUSE protocol that a single-file file system needs: parsing requests, building
//! answers.
//!
//! Layouts are those of linux/fuse.h, protocol 7.31 (Linux 5.4) and later; all numbers are in
//! native byte order.

pub const HEADER: usize = 40;
/// The longest read or write: the kernel's maximum of 256 pages.
pub const MOST: usize = 1 << 20;
/// Room for a write of that length with its headers.
pub const BUFFER: usize = MOST + 4096;
const WRITE_HEADER: usize = 40;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FSYNC: u32 = 20;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const FALLOCATE: u32 = 43;

const OLDEST_MINOR: u32 = 31;
const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;
const FOPEN_DIRECT_IO: u32 = 1;
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

/// A request of the kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum FuseRequest<'a> {
    Read {
        offset: u64,
        length: u64,
    },
    Write {
        offset: u64,
        data: &'a [u8],
    },
    Flush,
    Zero {
        offset: u64,
        length: u64,
    },
    /// To be answered at once, with this body or an errno.
    Now(Result<Vec<u8>, i32>),
    /// Needs no answer.
    Nothing,
    /// The file system is gone.
    End,
}

/// The exported file.
#[derive(Clone, Copy, Debug)]
pub struct File {
    pub size: u64,
    pub inode: u64,
    /// Size of a block as statfs(2) reports it; 0: not said. A loop device keeps it, as the
    /// granularity of its discards, for its next user.
    pub block: u32,
}

/// Parse a request into its id and its content. None if it is not a valid request.
pub fn parse<'a>(message: &'a [u8], file: &File) -> Option<(u64, FuseRequest<'a>)> {
    let length = word(message, 0)? as usize;
    let (operation, unique) = (word(message, 4)?, long(message, 8)?);
    if length != message.len() || length < HEADER {
        return None;
    }
    let body = &message[HEADER..];
    let request = match operation {
        INIT => FuseRequest::Now(begin(body)),
        GETATTR | SETATTR => FuseRequest::Now(Ok(attributes(file))),
        OPEN => FuseRequest::Now(Ok(opened())),
        STATFS => {
            let mut statistics = vec![0; 80];
            for at in [40, 48] {
                statistics[at..at + 4].copy_from_slice(&file.block.to_ne_bytes());
            }
            FuseRequest::Now(Ok(statistics))
        }
        RELEASE | FLUSH => FuseRequest::Now(Ok(Vec::new())),
        READ => {
            let (offset, length) = (long(body, 8)?, u64::from(word(body, 16)?));
            let left = file.size.saturating_sub(offset);
            match length.min(left) {
                0 => FuseRequest::Now(Ok(Vec::new())),
                length => FuseRequest::Read { offset, length },
            }
        }
        WRITE => {
            let (offset, length) = (long(body, 8)?, word(body, 16)? as usize);
            let data = body.get(WRITE_HEADER..)?;
            if data.len() != length {
                return None;
            }
            if !inside(file, offset, length as u64) || length == 0 {
                FuseRequest::Now(Err(libc::ENOSPC))
            } else {
                FuseRequest::Write { offset, data }
            }
        }
        FSYNC => FuseRequest::Flush,
        FALLOCATE => {
            let (offset, length, mode) = (long(body, 8)?, long(body, 16)?, word(body, 24)?);
            let zeros = mode & KEEP_SIZE != 0 && mode & (PUNCH_HOLE | ZERO_RANGE) != 0;
            if !zeros || !inside(file, offset, length) || length == 0 {
                FuseRequest::Now(Err(libc::EOPNOTSUPP))
            } else {
                FuseRequest::Zero { offset, length }
            }
        }
        FORGET | BATCH_FORGET | INTERRUPT => FuseRequest::Nothing,
        DESTROY => FuseRequest::End,
        LOOKUP => FuseRequest::Now(Err(libc::ENOENT)),
        _ => FuseRequest::Now(Err(libc::ENOSYS)),
    };
    Some((unique, request))
}

fn inside(file: &File, offset: u64, length: u64) -> bool {
    offset
        .checked_add(length)
        .is_some_and(|end| end <= file.size)
}

/// Build the header of an answer with this many bytes of body.
pub fn head(unique: u64, error: i32, length: usize) -> [u8; 16] {
    let mut head = [0; 16];
    head[..4].copy_from_slice(&((16 + length) as u32).to_ne_bytes());
    head[4..8].copy_from_slice(&(-error).to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    head
}

/// Build the answer to a write of this many bytes.
pub fn written(length: u32) -> [u8; 8] {
    let mut answer = [0; 8];
    answer[..4].copy_from_slice(&length.to_ne_bytes());
    answer
}

fn begin(body: &[u8]) -> Result<Vec<u8>, i32> {
    let word = |at: usize| word(body, at).ok_or(libc::EPROTO);
    let (major, minor, ahead, flags) = (word(0)?, word(4)?, word(8)?, word(12)?);
    let wanted = ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES;
    if major != 7 || minor < OLDEST_MINOR || flags & wanted != wanted {
        return Err(libc::EPROTO);
    }
    let mut answer = vec![0; 64];
    let mut put = |at: usize, bytes: &[u8]| answer[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &7_u32.to_ne_bytes());
    put(4, &OLDEST_MINOR.to_ne_bytes());
    put(8, &ahead.to_ne_bytes());
    put(12, &wanted.to_ne_bytes());
    // Background limits: more than any queue above holds.
    put(16, &4096_u16.to_ne_bytes());
    put(18, &4096_u16.to_ne_bytes());
    put(20, &(MOST as u32).to_ne_bytes());
    put(24, &1_u32.to_ne_bytes());
    put(28, &((MOST / 4096) as u16).to_ne_bytes());
    Ok(answer)
}

fn attributes(file: &File) -> Vec<u8> {
    const VALID_S: u64 = 86400;
    let mut answer = Vec::with_capacity(104);
    for long in [VALID_S, 0, file.inode, file.size, file.size / 512, 0, 0, 0] {
        answer.extend(long.to_ne_bytes());
    }
    let mode = libc::S_IFREG | 0o600;
    for word in [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        answer.extend(word.to_ne_bytes());
    }
    answer
}

fn opened() -> Vec<u8> {
    let mut answer = vec![0; 16];
    let flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES;
    answer[8..12].copy_from_slice(&flags.to_ne_bytes());
    answer
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: File = File {
        size: 8192,
        inode: 77,
        block: 0,
    };

    fn message(operation: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[..4].copy_from_slice(&((HEADER + body.len()) as u32).to_ne_bytes());
        bytes[4..8].copy_from_slice(&operation.to_ne_bytes());
        bytes[8..16].copy_from_slice(&42_u64.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    /// fuse_read_in and fuse_write_in start with the same fields.
    fn transfer(offset: u64, length: u32) -> Vec<u8> {
        let mut body = vec![0; 40];
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        body[16..20].copy_from_slice(&length.to_ne_bytes());
        body
    }

    #[test]
    fn a_read_ends_with_the_file() {
        let read = |offset, length| {
            let bytes = message(READ, &transfer(offset, length));
            let (unique, request) = parse(&bytes, &FILE).unwrap();
            assert_eq!(unique, 42);
            match request {
                FuseRequest::Read { offset, length } => (offset, length),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(read(4096, 4096), (4096, 4096));
        assert_eq!(read(4096, 8192), (4096, 4096));
        let beyond = message(READ, &transfer(8192, 512));
        assert_eq!(
            parse(&beyond, &FILE),
            Some((42, FuseRequest::Now(Ok(Vec::new()))))
        );
    }

    #[test]
    fn a_write_beyond_the_end_finds_no_space_and_changes_nothing() {
        let mut body = transfer(8191, 2);
        body.extend([1, 2]);
        let bytes = message(WRITE, &body);
        assert_eq!(
            parse(&bytes, &FILE),
            Some((42, FuseRequest::Now(Err(libc::ENOSPC))))
        );
        let mut body = transfer(u64::MAX, 2);
        body.extend([1, 2]);
        let bytes = message(WRITE, &body);
        assert_eq!(
            parse(&bytes, &FILE),
            Some((42, FuseRequest::Now(Err(libc::ENOSPC))))
        );
    }

    #[test]
    fn attributes_have_the_length_that_the_kernel_checks() {
        assert_eq!(attributes(&FILE).len(), 104);
        assert_eq!(opened().len(), 16);
        assert_eq!(written(4096).len(), 8);
    }

    #[test]
    fn what_is_cut_short_is_no_request() {
        let mut body = transfer(0, 512);
        body.extend([7; 512]);
        let whole = message(WRITE, &body);
        assert!(parse(&whole, &FILE).is_some());
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end], &FILE), None);
            let mut lying = whole[..end].to_vec();
            if end >= 4 {
                lying[..4].copy_from_slice(&(end as u32).to_ne_bytes());
                assert_eq!(parse(&lying, &FILE), None);
            }
        }
    }

    #[test]
    fn a_kernel_without_direct_io_that_does_not_wait_is_refused() {
        let mut body = vec![0; 16];
        body[..4].copy_from_slice(&7_u32.to_ne_bytes());
        body[4..8].copy_from_slice(&40_u32.to_ne_bytes());
        assert_eq!(begin(&body), Err(libc::EPROTO));
        body[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(begin(&body).map(|answer| answer.len()), Ok(64));
    }
}
