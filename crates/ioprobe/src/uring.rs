//! Sets up an io_uring with the features of this kernel, found by trial: from the best combination
//! down to none.
//!
//! Single issuer with deferred task work came with Linux 6.1, rings without an index array with
//! 6.6.

use io_uring::{Builder, IoUring};

use crate::error::{errno_text, Error, Result};

/// The combinations to try, in the words used in answers.
const SETUPS: [&[&str]; 5] = [
    &["single-issuer", "deferred-task-work", "no-index-array"],
    &["single-issuer", "deferred-task-work"],
    &["cooperative-task-work"],
    &[],
    OLD,
];
/// For kernels without IORING_SETUP_SUBMIT_ALL: they stop at the first submission that fails.
const OLD: &[&str] = &["old"];

/// Set up a ring with room for this many submissions, for use by this thread only. Returns it with
/// its features.
pub fn set_up(entries: u32) -> Result<(IoUring, Vec<&'static str>)> {
    let mut errno = libc::EINVAL;
    for wanted in SETUPS {
        let mut builder: Builder = IoUring::builder();
        if wanted != OLD {
            builder.setup_submit_all();
        }
        for word in wanted {
            match *word {
                "single-issuer" => builder.setup_single_issuer(),
                "deferred-task-work" => builder.setup_defer_taskrun(),
                "no-index-array" => builder.setup_no_sqarray(),
                "cooperative-task-work" => builder.setup_coop_taskrun(),
                _ => &mut builder,
            };
        }
        match builder.build(entries) {
            Ok(ring) if wanted == OLD => return Ok((ring, Vec::new())),
            Ok(ring) => return Ok((ring, wanted.to_vec())),
            Err(cause) => errno = cause.raw_os_error().unwrap_or(libc::EIO),
        }
        if errno != libc::EINVAL {
            break;
        }
    }
    match errno {
        libc::ENOSYS | libc::EPERM | libc::EACCES => Err(Error::unsupported(format!(
            "set up io_uring: the kernel lacks it or does not allow it (kernel.io_uring_disabled): {}",
            errno_text(errno)
        ))),
        errno => Err(Error::errno("set up an io_uring", errno)),
    }
}
