//! Acknowledges the files of a `files` job that a power cut must not lose any more.
//!
//! `+ SIZE CHECKSUM PATH` after a file was synced: from then on it must be there, with this size
//! and content (CRC-32 in hexadecimal). `- PATH` before it is changed again: from then on it need
//! not.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, RawFd};

use crc32fast::Hasher;
use rustix::fs::fstat;

use crate::acknowledge::Marker;
use crate::content::Content;
use crate::error::Result;
use crate::protocol::Operation;

/// The content of a file is computed in pieces of this size.
const PIECE: u64 = 1 << 20;

pub struct Acknowledger<'a> {
    marker: Marker,
    content: Content,
    files: &'a [u32],
    /// For each file of the job, whether it was acknowledged and has not been changed since.
    kept: Vec<bool>,
}

impl<'a> Acknowledger<'a> {
    /// `marks` is the socket of the disk that logs; if it is empty, acknowledgements are collected.
    pub fn connect(marks: &str, content: Content, files: &'a [u32]) -> Result<Self> {
        Ok(Acknowledger {
            marker: Marker::connect(marks)?,
            content,
            files,
            kept: vec![false; files.len()],
        })
    }

    /// Withdraw a file that the operation is about to change. Returns the errno if that failed.
    pub fn before(
        &mut self,
        operation: Operation,
        item: usize,
        path: &CStr,
    ) -> std::result::Result<(), i32> {
        use Operation::{Create, OpenTruncate, Unlink, WriteAll, WriteByte};
        let changes = matches!(
            operation,
            Create | OpenTruncate | Unlink | WriteAll | WriteByte
        );
        if changes && std::mem::take(&mut self.kept[item]) {
            self.say(b"- ", path)?;
        }
        Ok(())
    }

    /// Acknowledge a file that the operation has synced.
    pub fn after(
        &mut self,
        operation: Operation,
        item: usize,
        path: &CStr,
        descriptor: RawFd,
    ) -> std::result::Result<(), i32> {
        if operation != Operation::Fsync {
            return Ok(());
        }
        // SAFETY: the job's own descriptor, open until it closes it.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let size = fstat(file).map_err(|errno| errno.raw_os_error())?.st_size as u64;
        let head = format!("+ {size} {:08x} ", self.checksum(self.files[item], size));
        self.say(head.as_bytes(), path)?;
        self.kept[item] = true;
        Ok(())
    }

    /// Take the acknowledgements that go into the answer.
    pub fn collected(self) -> Vec<(u64, String)> {
        self.marker.collected()
    }

    fn checksum(&self, index: u32, size: u64) -> u32 {
        let mut hasher = Hasher::new();
        let mut piece = vec![0; size.min(PIECE) as usize];
        let mut offset = 0;
        while offset < size {
            let length = (size - offset).min(PIECE) as usize;
            self.content.fill(index, offset, &mut piece[..length]);
            hasher.update(&piece[..length]);
            offset += length as u64;
        }
        hasher.finalize()
    }

    fn say(&self, head: &[u8], path: &CStr) -> std::result::Result<(), i32> {
        let text = [head, path.to_bytes()].concat();
        self.marker
            .mark(&text)
            .map_err(|errno| errno.raw_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acknowledge::tests::collecting;
    use crate::content::Kind;

    #[test]
    fn a_synced_file_is_acknowledged_and_withdrawn_before_it_changes() {
        let socket = format!("/tmp/ioprobe-test-{}-files", std::process::id());
        let _ = std::fs::remove_file(&socket);
        let marks = collecting(&socket);
        let content = Content {
            kind: Kind::Zeros,
            seed: 1,
        };
        let path = c"/tmp/some/file";
        let file = crate::sys::memory_file(&std::ffi::CString::default()).unwrap();
        rustix::fs::ftruncate(&file, 4).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        let mut own = Acknowledger::connect(&socket, content, &[7]).unwrap();
        own.before(Operation::Create, 0, path).unwrap();
        own.after(Operation::WriteAll, 0, path, descriptor).unwrap();
        own.after(Operation::Fsync, 0, path, descriptor).unwrap();
        own.before(Operation::Close, 0, path).unwrap();
        own.before(Operation::Unlink, 0, path).unwrap();
        own.before(Operation::Create, 0, path).unwrap();
        drop(own);
        // 2144df1c is the CRC-32 of four zero bytes.
        let expected = ["+ 4 2144df1c /tmp/some/file", "- /tmp/some/file"];
        assert_eq!(marks.join().unwrap(), expected);
        std::fs::remove_file(socket).unwrap();
    }
}
