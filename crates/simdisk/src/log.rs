//! The log of a disk's writes, in the format of the kernel's dm-log-writes target (its layouts are
//! in drivers/md/dm-log-writes.c), and the socket by which programs put marks into it.
//!
//! A write is logged when it completes, a flush when it arrives: as on a real disk, a flush covers
//! only the writes that had completed before it was sent. The unused part of a request's sector
//! begins with that time, in nanoseconds of the monotonic clock; the kernel's target leaves it zero.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};

use rustix::io::Errno;
use rustix::net::{
    accept_with, bind, listen, recv, send, socket_with, AddressFamily, RecvFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use super::server::monotonic_ns;
use super::{Error, Result};

const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const SECTOR: usize = 512;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// What fits into the sector of an entry, behind its header of 32 bytes.
pub const MARK_MOST: usize = SECTOR - 32;
/// Programs that put marks at the same time.
const CONNECTIONS: usize = 256;

/// An open log. It is complete in the file after each `seal`.
pub struct Log {
    file: File,
    path: String,
    entries: u64,
    sealed: u64,
}

impl Log {
    /// Create the file; it must not exist.
    pub fn create(path: &str) -> Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed(format!("create the write log {path}")))?;
        let mut log = Log {
            file,
            path: path.to_string(),
            entries: 0,
            sealed: u64::MAX,
        };
        log.seal()?;
        let place = SECTOR as u64;
        let sought = io::Seek::seek(&mut log.file, io::SeekFrom::Start(place));
        sought.map_err(failed(format!("write the log {path}")))?;
        Ok(log)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        self.append(offset, data.len() as u64, 0, &[], data)
    }

    pub fn zero(&mut self, offset: u64, length: u64) -> Result<()> {
        self.append(offset, length, DISCARD, &[], &[])
    }

    pub fn flush(&mut self) -> Result<()> {
        self.append(0, 0, FLUSH, &[], &[])
    }

    /// Add a mark of up to `MARK_MOST` bytes.
    pub fn mark(&mut self, text: &[u8]) -> Result<()> {
        self.append(0, 0, MARK, text, &[])
    }

    /// Write the number of entries to the file's first sector.
    pub fn seal(&mut self) -> Result<()> {
        if self.sealed == self.entries {
            return Ok(());
        }
        let mut sector = [0; SECTOR];
        sector[..8].copy_from_slice(&MAGIC.to_le_bytes());
        sector[8..16].copy_from_slice(&VERSION.to_le_bytes());
        sector[16..24].copy_from_slice(&self.entries.to_le_bytes());
        sector[24..28].copy_from_slice(&(SECTOR as u32).to_le_bytes());
        let doing = || format!("write the log {}", self.path);
        self.file
            .write_all_at(&sector, 0)
            .map_err(failed(doing()))?;
        self.sealed = self.entries;
        Ok(())
    }

    fn append(
        &mut self,
        offset: u64,
        length: u64,
        flags: u64,
        text: &[u8],
        data: &[u8],
    ) -> Result<()> {
        let sector = SECTOR as u64;
        if offset % sector != 0 || length % sector != 0 || text.len() > MARK_MOST {
            return Err(Error::Protocol(format!(
                "log a request: expected whole sectors of {SECTOR} bytes, found {length} bytes at {offset}"
            )));
        }
        let mut entry = [0; SECTOR];
        let numbers = [offset / sector, length / sector, flags, text.len() as u64];
        for (place, number) in entry.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        if flags & MARK == 0 {
            entry[32..40].copy_from_slice(&monotonic_ns().to_le_bytes());
        }
        entry[32..32 + text.len()].copy_from_slice(text);
        let written = self
            .file
            .write_all(&entry)
            .and_then(|()| self.file.write_all(data));
        written.map_err(failed(format!("write the log {}", self.path)))?;
        self.entries += 1;
        Ok(())
    }
}

/// The socket for marks: each message is a mark, answered with one byte once it is in the log.
pub struct Marks {
    listener: OwnedFd,
    connections: Vec<OwnedFd>,
}

impl Marks {
    /// Create the socket, open to every program that can reach its folder.
    pub fn listen(path: &str) -> Result<Self> {
        let doing = || format!("make the socket for marks {path}");
        let kind = (
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        );
        let listener =
            socket_with(AddressFamily::UNIX, kind.0, kind.1, None).map_err(Error::os(doing()))?;
        let address = SocketAddrUnix::new(path).map_err(Error::os(doing()))?;
        bind(&listener, &address).map_err(Error::os(doing()))?;
        fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed(doing()))?;
        listen(&listener, 64).map_err(Error::os(doing()))?;
        Ok(Marks {
            listener,
            connections: Vec::new(),
        })
    }

    /// What to poll for.
    pub fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        std::iter::once(&self.listener).chain(&self.connections)
    }

    /// Accept connections, and log the marks that have arrived. Broken connections are dropped.
    pub fn take(&mut self, log: &mut Log) -> Result<()> {
        while let Ok(new) =
            accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
        {
            if self.connections.len() < CONNECTIONS {
                self.connections.push(new);
            }
        }
        let mut kept = Vec::with_capacity(self.connections.len());
        for connection in self.connections.drain(..) {
            if taken(&connection, log)? {
                kept.push(connection);
            }
        }
        self.connections = kept;
        Ok(())
    }
}

/// Log the marks of one connection. Returns false if it has ended.
fn taken(connection: &OwnedFd, log: &mut Log) -> Result<bool> {
    // One byte more than allowed: a message that is too long shows.
    let mut text = [0; MARK_MOST + 1];
    loop {
        match recv(connection, &mut text[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Ok((n @ 1..=MARK_MOST, _)) => log.mark(&text[..n])?,
            _ => return Ok(false),
        }
        if send(connection, b"k", SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
            return Ok(false);
        }
    }
}

fn failed(doing: String) -> impl FnOnce(io::Error) -> Error {
    move |cause| Error::Os {
        doing,
        errno: cause.raw_os_error().unwrap_or(libc::EIO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn the_bytes_are_those_that_dm_log_writes_documents() {
        let path = std::env::temp_dir().join(format!("simdisk-log-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let mut log = Log::create(path.to_str().unwrap()).unwrap();
        log.write(4096, &[7; 1024]).unwrap();
        log.flush().unwrap();
        log.zero(512, 512).unwrap();
        log.mark(b"done").unwrap();
        assert_eq!(number(&fs::read(&path).unwrap(), 16), 0);
        log.seal().unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(&bytes[..8], b"rhswfsj\0");
        assert_eq!([8, 16].map(|at| number(&bytes, at)), [1, 4]);
        assert_eq!(u32::from_le_bytes(bytes[24..28].try_into().unwrap()), 512);
        // Entries are at sectors 1, 4, 5 and 6: the data of the write take two.
        let entry = |sector: usize| [0, 8, 16, 24].map(|at| number(&bytes, sector * 512 + at));
        assert_eq!(entry(1), [8, 2, 0, 0]);
        assert!(bytes[1024..2048].iter().all(|byte| *byte == 7));
        assert_eq!(entry(4), [0, 0, 1, 0]);
        assert_eq!(entry(5), [1, 1, 4, 0]);
        assert_eq!(entry(6), [0, 0, 8, 4]);
        let times = [1, 4, 5].map(|sector: usize| number(&bytes, sector * 512 + 32));
        assert!(0 < times[0] && times.is_sorted() && times[2] <= monotonic_ns());
        assert_eq!(&bytes[6 * 512 + 32..6 * 512 + 36], b"done");
        assert_eq!(bytes.len(), 7 * 512);
    }

    #[test]
    fn a_part_of_a_sector_is_refused() {
        let path = std::env::temp_dir().join(format!("simdisk-part-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let mut log = Log::create(path.to_str().unwrap()).unwrap();
        assert!(log.write(100, &[1; 512]).is_err());
        assert!(log.write(512, &[1; 100]).is_err());
        assert!(Log::create(path.to_str().unwrap()).is_err());
        fs::remove_file(&path).unwrap();
    }
}
