//! Jobs: the timed workloads, and the kernel's counters around them.

pub mod command;
pub mod files;
mod gate;
pub mod matrix;
mod places;
pub mod random;
pub mod rebuild;
mod region;
pub mod replay;
pub mod stopwatch;
pub mod stream;
pub mod stretch;
pub mod usage;
pub mod watch;

use crate::error::{Error, Result};
use crate::identity::{Borrowed, User};
use crate::isolate::Lifeline;
use crate::sys::open_files;

/// Switch to the requested user, until the returned value is dropped.
pub fn act_as(user: Option<User>, lifeline: &Lifeline) -> Result<Option<Borrowed<'_>>> {
    match user {
        None => Ok(None),
        Some(user) => {
            require_root_for_user()?;
            Borrowed::assume(user, lifeline).map(Some)
        }
    }
}

/// Check for root, which a switch of user needs, before anything is started.
pub fn require_root_for_user() -> Result<()> {
    match rustix::process::geteuid().as_raw() {
        0 => Ok(()),
        uid => Err(Error::unsupported(format!(
            "run as another user: needs root, but the probe runs as uid {uid}"
        ))),
    }
}

/// Check the open-file limit before the work, so that the kernel does not refuse a file in the
/// middle of it.
pub fn require_open_files(files: usize) -> Result<()> {
    const SPARE: u64 = 64;
    let wanted = files as u64 + SPARE;
    match open_files().rlim_cur {
        limit if wanted <= limit => Ok(()),
        limit => Err(Error::unsupported(format!(
            "open {files} files at once: needs an open-file limit (ulimit -n) of {wanted}, found {limit}"
        ))),
    }
}
