//! stdio streams as programs use them: the C library's own fopen, setvbuf, fwrite, fread, fflush
//! and fclose.

use std::ffi::CStr;

use libc::{c_int, FILE};

use crate::error::{last_errno, Error, Result};

/// An open stream. It owns its buffer, which must live until the stream is closed.
pub struct Stream {
    file: *mut FILE,
    _buffer: Vec<u8>,
}

impl Stream {
    /// fopen(3), then setvbuf(3): fully buffered, with a buffer of one record.
    pub fn open(path: &CStr, mode: &CStr, record: usize) -> Result<Self> {
        let doing = |what: &str| format!("{what} {}", path.to_string_lossy());
        // Touch the buffer's pages before the clock starts.
        let mut buffer = vec![0xa5; record];
        // SAFETY: both strings end with NUL; the buffer outlives the stream (see `Drop`).
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

    /// fwrite(3); returns the number of bytes written.
    #[inline(always)]
    pub fn write(&self, record: &[u8]) -> usize {
        // SAFETY: the stream is open, the slice valid for its length.
        unsafe { libc::fwrite(record.as_ptr().cast(), 1, record.len(), self.file) }
    }

    /// fread(3); returns the number of bytes read.
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

    /// fflush(3); the error is its errno.
    pub fn flush(&self) -> std::result::Result<(), i32> {
        // SAFETY: the stream is open.
        errno_of(unsafe { libc::fflush(self.file) })
    }

    /// fsync(2) of the underlying file; the error is its errno.
    pub fn sync(&self) -> std::result::Result<(), i32> {
        // SAFETY: the stream is open.
        errno_of(unsafe { libc::fsync(libc::fileno(self.file)) })
    }

    /// fclose(3); the error is its errno.
    pub fn close(mut self) -> std::result::Result<(), i32> {
        let file = std::mem::replace(&mut self.file, std::ptr::null_mut());
        // SAFETY: the stream is open, and nothing else uses it any more.
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
