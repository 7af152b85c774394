//! Jobs: the work that is timed, and what the kernel counted meanwhile.

pub mod command;
pub mod files;
pub mod matrix;
mod places;
pub mod random;
pub mod rebuild;
pub mod stopwatch;
pub mod stream;
pub mod stretch;
pub mod usage;
pub mod watch;

use crate::error::{Error, Result};
use crate::identity::{Borrowed, User};
use crate::isolate::Lifeline;
use crate::sys::open_files;

/// From here on the work is done as the user who was asked for, until what is returned is dropped.
pub fn act_as(user: Option<User>, lifeline: &Lifeline) -> Result<Option<Borrowed<'_>>> {
    match user {
        None => Ok(None),
        Some(user) => {
            require_root_for_user()?;
            Borrowed::assume(user, lifeline).map(Some)
        }
    }
}

/// A switch of user needs root; said before anything is started.
pub fn require_root_for_user() -> Result<()> {
    match rustix::process::geteuid().as_raw() {
        0 => Ok(()),
        uid => Err(Error::unsupported(format!(
            "act as another user: wanted to be root, found uid {uid}"
        ))),
    }
}

/// So many files open at once that the kernel would refuse some in the middle of the work are refused before it.
pub fn require_open_files(files: usize) -> Result<()> {
    const SPARE: u64 = 64;
    let wanted = files as u64 + SPARE;
    match open_files().rlim_cur {
        limit if wanted <= limit => Ok(()),
        limit => Err(Error::unsupported(format!(
            "open {files} files at once: wanted a limit of {wanted} open files, found {limit}"
        ))),
    }
}
