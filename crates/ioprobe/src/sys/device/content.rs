//! The content of a claimed disk: check that it is empty, write and read the lab's mark, zero a
//! range.
//!
//! All reads are direct, so that the disk answers and not a cache. Before a direct read the kernel
//! writes back pages that others have dirtied.

use rustix::io::Errno;
use rustix::rand::GetRandomFlags;
use std::os::fd::BorrowedFd;
use std::os::unix::io::AsRawFd;

use libc::c_ulong;
use serde_json::{json, Value};

use super::Device;
use crate::error::{Doing, Error, Result};
use crate::protocol;
use crate::sys::check;
use crc32fast::Hasher;

/// The unit of a sample and of the mark, and the alignment of memory for direct I/O.
const BLOCK: u64 = 4096;
const STRETCH: u64 = 1 << 20;
const ZEROED_AT_ONCE: u64 = 64 << 20;
/// The size that a disk writes atomically; the mark fits into it.
const ATOM: usize = 512;
const TITLE: &str = "iotrial lab 1";
const BLKZEROOUT: c_ulong = 0x127f;

/// Check both ends and random blocks of the disk or, if that is not less, all of it.
pub fn look(device: &Device, request: &protocol::DeviceCheck) -> Result<Value> {
    let size = device.state.size;
    let blocks = size / BLOCK;
    let mut reader = Reader::new(device)?;
    let found = if request.samples >= blocks {
        reader.first_nonzero(0, size)?
    } else {
        let edge = request.edge_bytes.min(size) / BLOCK * BLOCK;
        let end = (size - edge) / BLOCK * BLOCK;
        match reader.first_nonzero(0, edge)? {
            None => match reader.first_nonzero(end, size - end)? {
                None => samples(&mut reader, request.samples, blocks)?,
                found => found,
            },
            found => found,
        }
    };
    Ok(json!({
        "nonzero": found,
        "read_bytes": reader.read_bytes,
        "samples": request.samples.min(blocks),
    }))
}

/// Check random blocks in disk order. If a share p of all blocks is not zero, n independent samples
/// miss them with probability (1 - p)^n.
fn samples(reader: &mut Reader, count: u64, blocks: u64) -> Result<Option<u64>> {
    let mut drawn = Vec::with_capacity(count as usize);
    for _ in 0..count {
        drawn.push(random_below(blocks)?);
    }
    drawn.sort_unstable();
    for block in drawn {
        let found = reader.first_nonzero(block * BLOCK, BLOCK)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Check every byte of a range.
pub fn scan(device: &Device, request: &protocol::DeviceRange) -> Result<Value> {
    within(device, request.offset, request.length)?;
    let mut reader = Reader::new(device)?;
    let found = reader.first_nonzero(request.offset, request.length)?;
    Ok(json!({"nonzero": found, "read_bytes": reader.read_bytes}))
}

/// Zero a range and nothing else, and read it back.
pub fn zero(device: &Device, request: &protocol::DeviceRange) -> Result<Value> {
    within(device, request.offset, request.length)?;
    let doing = || format!("zero {} bytes of {}", request.length, device.name);
    device.evict()?;
    let writing = device.writing(0)?;
    let end = request.offset + request.length;
    let mut at = request.offset;
    while at < end {
        let range: [u64; 2] = [at, (end - at).min(ZEROED_AT_ONCE)];
        check(
            // SAFETY: the kernel reads two numbers.
            unsafe { libc::ioctl(writing.as_raw_fd(), BLKZEROOUT, &range) },
            doing,
        )?;
        at += range[1];
    }
    rustix::fs::fdatasync(&writing).doing(doing)?;
    drop(writing);
    device.evict()?;
    match Reader::new(device)?.first_nonzero(request.offset, request.length)? {
        None => Ok(json!({})),
        Some(at) => Err(Error::verify(format!(
            "{}: expected zeros, found other data at byte {at}",
            doing()
        ))),
    }
}

/// Write the block that identifies the lab that owns the disk, and read it back.
pub fn mark(device: &Device, request: &protocol::DeviceMark) -> Result<Value> {
    within(device, request.offset, BLOCK)?;
    let doing = || format!("mark {}", device.name);
    let text = marked_text(&request.text)
        .ok_or_else(|| Error::bad(format!("{}: the text must be one short line", doing())))?;
    let mut block = Aligned::new(BLOCK);
    block.bytes()[..text.len()].copy_from_slice(text.as_bytes());
    let writing = device.writing(libc::O_DIRECT)?;
    let n = rustix::io::pwrite(&writing, block.bytes(), request.offset).doing(doing)? as u64;
    if n != BLOCK {
        let text = format!("{}: expected {BLOCK} bytes, wrote {n}", doing());
        return Err(Error::verify(text));
    }
    rustix::fs::fdatasync(&writing).doing(doing)?;
    match read_mark(device, request.offset)? {
        Some(found) if found == request.text => Ok(json!({})),
        found => Err(Error::verify(format!(
            "{}: expected {:?}, found {found:?}",
            doing(),
            request.text
        ))),
    }
}

pub fn marked(device: &Device, request: &protocol::DeviceMarked) -> Result<Value> {
    within(device, request.offset, BLOCK)?;
    Ok(json!({ "text": read_mark(device, request.offset)? }))
}

fn read_mark(device: &Device, offset: u64) -> Result<Option<String>> {
    let mut reader = Reader::new(device)?;
    let block = reader.read(offset, BLOCK)?;
    Ok(unmarked_text(&block[..ATOM]))
}

fn marked_text(text: &str) -> Option<String> {
    let head = format!("{TITLE}\n{text}\n");
    let whole = format!("{head}{}\n", sum(&head));
    (whole.len() <= ATOM && !text.contains('\n') && !text.is_empty()).then_some(whole)
}

/// Return the text of an intact mark.
fn unmarked_text(block: &[u8]) -> Option<String> {
    let end = block.iter().position(|b| *b == 0).unwrap_or(block.len());
    let whole = std::str::from_utf8(&block[..end]).ok()?;
    let text = whole
        .strip_prefix(TITLE)?
        .strip_prefix('\n')?
        .split('\n')
        .next()?;
    (marked_text(text)? == whole).then(|| text.to_string())
}

fn sum(text: &str) -> String {
    let mut crc = Hasher::new();
    crc.update(text.as_bytes());
    format!("{:08x}", crc.finalize())
}

fn within(device: &Device, offset: u64, length: u64) -> Result<()> {
    let end = offset.checked_add(length);
    if offset % BLOCK == 0 && length % BLOCK == 0 && end.is_some_and(|end| end <= device.state.size)
    {
        return Ok(());
    }
    Err(Error::bad(format!(
        "{}: expected a range of whole blocks of {BLOCK} bytes within its {} bytes, found {length} bytes at {offset}",
        device.name, device.state.size
    )))
}

/// Return a random number below `limit`. The modulo bias is below 2^-20 for any existing disk.
fn random_below(limit: u64) -> Result<u64> {
    let mut bytes = [0_u8; 8];
    match rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_ne_bytes(bytes) % limit),
        drawn => {
            drawn.doing(|| "draw a random number")?;
            Err(Error::verify("draw a random number: too few bytes"))
        }
    }
}

struct Reader<'a> {
    device: &'a Device,
    fd: BorrowedFd<'a>,
    buffer: Aligned,
    zeros: Vec<u8>,
    read_bytes: u64,
}

impl<'a> Reader<'a> {
    fn new(device: &'a Device) -> Result<Self> {
        Ok(Reader {
            device,
            fd: device.reading()?,
            buffer: Aligned::new(STRETCH),
            zeros: vec![0; STRETCH as usize],
            read_bytes: 0,
        })
    }

    fn read(&mut self, offset: u64, length: u64) -> Result<&[u8]> {
        let name = &self.device.name;
        let bytes = &mut self.buffer.bytes()[..length as usize];
        let n = loop {
            match rustix::io::pread(self.fd, &mut *bytes, offset) {
                Err(Errno::INTR) => {}
                read => break read.doing(|| format!("read {name} at {offset}"))?,
            }
        };
        if n as u64 != length {
            return Err(Error::verify(format!(
                "read {name} at {offset}: expected {length} bytes, found {n}"
            )));
        }
        self.read_bytes += length;
        Ok(bytes)
    }

    /// Return the offset of the first byte that is not zero.
    fn first_nonzero(&mut self, offset: u64, length: u64) -> Result<Option<u64>> {
        let mut at = offset;
        while at < offset + length {
            let n = (offset + length - at).min(STRETCH);
            self.read(at, n)?;
            let zeros = &self.zeros[..n as usize];
            let bytes = &self.buffer.bytes()[..n as usize];
            if bytes != zeros {
                let first = bytes.iter().position(|b| *b != 0).unwrap_or(0);
                return Ok(Some(at + first as u64));
            }
            at += n;
        }
        Ok(None)
    }
}

/// Memory aligned for direct reads.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn new(length: u64) -> Self {
        let memory = vec![0; (length + BLOCK) as usize];
        let start = memory.as_ptr().align_offset(BLOCK as usize);
        Aligned {
            memory,
            start,
            length: length as usize,
        }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Vec<u8> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(ATOM, 0);
        bytes
    }

    #[test]
    fn a_mark_says_what_was_written_and_nothing_where_it_is_damaged() {
        let whole = marked_text("trial 12 size 4096").unwrap();
        assert_eq!(
            unmarked_text(&block(&whole)).as_deref(),
            Some("trial 12 size 4096")
        );
        for at in 0..whole.len() {
            let mut bytes = block(&whole);
            bytes[at] ^= 1;
            assert_eq!(unmarked_text(&bytes), None, "byte {at}");
        }
        assert_eq!(unmarked_text(&[0; ATOM]), None);
        assert_eq!(unmarked_text(&[0xff; ATOM]), None);
    }

    #[test]
    fn a_mark_fits_into_what_a_disk_writes_at_once() {
        assert_eq!(marked_text(&"x".repeat(500)), None);
        assert_eq!([marked_text("a\nb"), marked_text("")], [None, None]);
    }
}
