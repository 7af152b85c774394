//! The four kinds of request failure, and their messages.
//!
//! A message states the action, its object, and what was found. The code tells the conductor what
//! is at fault: the request, the kernel, the outcome, or something that this machine lacks.

use std::fmt::{self, Display, Formatter};
use std::io;

use serde::Serialize;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug)]
pub enum Error {
    /// The request itself is wrong: unknown verb; missing, unknown or unusable field.
    BadRequest(String),
    /// A system call failed.
    Os { doing: String, errno: i32 },
    /// The work was done, but its outcome is wrong.
    Verify(String),
    /// This kernel, file system or privilege cannot do it.
    Unsupported(String),
}

impl std::error::Error for Error {}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        match self {
            Error::Os { doing, errno } => write!(f, "{doing}: {}", errno_text(*errno)),
            Error::BadRequest(text) | Error::Verify(text) | Error::Unsupported(text) => {
                f.write_str(text)
            }
        }
    }
}

impl Error {
    pub fn bad(message: impl Into<String>) -> Self {
        Error::BadRequest(message.into())
    }

    pub fn verify(message: impl Into<String>) -> Self {
        Error::Verify(message.into())
    }

    pub fn unsupported(message: impl Into<String>) -> Self {
        Error::Unsupported(message.into())
    }

    pub fn errno(doing: impl Into<String>, errno: i32) -> Self {
        Error::Os {
            doing: doing.into(),
            errno,
        }
    }

    /// The failure of the system call that this thread has just made.
    pub fn last_os(doing: impl Into<String>) -> Self {
        Error::errno(doing, last_errno())
    }

    /// Return the answer's `error` object.
    pub fn report(&self) -> Report {
        let (code, errno) = match self {
            Error::BadRequest(_) => ("bad_request", None),
            Error::Os { errno, .. } => ("os", Some(*errno)),
            Error::Verify(_) => ("verify", None),
            Error::Unsupported(_) => ("unsupported", None),
        };
        Report {
            code,
            message: self.to_string(),
            errno,
        }
    }
}

#[derive(Debug, PartialEq, Serialize)]
pub struct Report {
    pub code: &'static str,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// Adds what was being done to a failure of a library call.
pub trait Doing<T> {
    fn doing<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T>;
}

impl<T> Doing<T> for io::Result<T> {
    fn doing<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|cause| match cause.raw_os_error() {
            Some(errno) => Error::errno(doing().to_string(), errno),
            // The library's own errors, such as a NUL byte in a path.
            None => Error::bad(format!("{}: {cause}", doing())),
        })
    }
}

impl<T> Doing<T> for rustix::io::Result<T> {
    fn doing<D: Display>(self, doing: impl FnOnce() -> D) -> Result<T> {
        self.map_err(|errno| Error::errno(doing().to_string(), errno.raw_os_error()))
    }
}

impl From<simdisk::Error> for Error {
    fn from(error: simdisk::Error) -> Self {
        match error {
            simdisk::Error::Description(text) => Error::BadRequest(text),
            simdisk::Error::Os { doing, errno } => Error::Os { doing, errno },
            simdisk::Error::Protocol(text) => Error::Verify(text),
        }
    }
}

pub fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Return only the kernel's message: the standard library adds "(os error 2)", which the answer has
/// as `errno`.
pub fn errno_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_os_error_says_what_was_done_and_what_the_kernel_said() {
        let error = Error::errno("read /nope", libc::ENOENT);
        assert_eq!(error.to_string(), "read /nope: No such file or directory");
        assert_eq!(
            serde_json::to_value(error.report()).unwrap(),
            serde_json::json!({"code": "os", "message": "read /nope: No such file or directory", "errno": 2})
        );
    }
}
