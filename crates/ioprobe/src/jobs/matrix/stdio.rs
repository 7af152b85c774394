//! The C library's streams, as programs use them: fopen, setvbuf, fwrite, fread, fflush, fclose of the library itself.

use std::ffi::CStr;

use libc::{c_int, FILE};

use crate::error::{last_errno, Error, Result};

/// An open stream. The buffer that it was given must live until it is closed, so it is the stream's own.
pub struct Stream {
    file: *mut FILE,
    _buffer: Vec<u8>,
}

impl Stream {
    /// fopen(3), and setvbuf(3) with a buffer of one record, fully buffered.
    pub fn open(path: &CStr, mode: &CStr, record: usize) -> Result<Self> {
        let doing = |what: &str| format!("{what} {}", path.to_string_lossy());
        // Its pages are there before the clock starts.
        let mut buffer = vec![0xa5; record];
        // SAFETY: both texts end with NUL; the buffer outlives the stream (see `Drop`).
        unsafe {
            let file = libc::fopen(path.as_ptr(), mode.as_ptr());
            if file.is_null() {
                return Err(Error::last_os(doing("fopen")));
            }
            let room = buffer.as_mut_ptr().cast();
            if libc::setvbuf(file, room, libc::_IOFBF, record) != 0 {
                libc::fclose(file);
                return Err(Error::last_os(doing("setvbuf")));
            }
            Ok(Stream {
                file,
                _buffer: buffer,
            })
        }
    }

    /// How many bytes fwrite(3) took.
    #[inline(always)]
    pub fn write(&self, record: &[u8]) -> usize {
        // SAFETY: the stream is open, the slice valid for its length.
        unsafe { libc::fwrite(record.as_ptr().cast(), 1, record.len(), self.file) }
    }

    /// How many bytes fread(3) gave.
    #[inline(always)]
    pub fn read(&self, record: &mut [u8]) -> usize {
        // SAFETY: the stream is open, the slice valid for its length.
        unsafe { libc::fread(record.as_mut_ptr().cast(), 1, record.len(), self.file) }
    }

    #[cold]
    pub fn failed(&self) -> bool {
        // SAFETY: the stream is open.
        unsafe { libc::ferror(self.file) != 0 }
    }

    /// fflush(3); the errno where it failed.
    pub fn flush(&self) -> std::result::Result<(), i32> {
        // SAFETY: the stream is open.
        errno_of(unsafe { libc::fflush(self.file) })
    }

    /// fsync(2) of what is below.
    pub fn sync(&self) -> std::result::Result<(), i32> {
        // SAFETY: the stream is open.
        errno_of(unsafe { libc::fsync(libc::fileno(self.file)) })
    }

    /// fclose(3).
    pub fn close(mut self) -> std::result::Result<(), i32> {
        let file = std::mem::replace(&mut self.file, std::ptr::null_mut());
        // SAFETY: the stream is open, and nobody has it any more.
        errno_of(unsafe { libc::fclose(file) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.file.is_null() {
            // SAFETY: the stream is open; the buffer is dropped after this.
            unsafe { libc::fclose(self.file) };
        }
    }
}

fn errno_of(result: c_int) -> std::result::Result<(), i32> {
    match result {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}
