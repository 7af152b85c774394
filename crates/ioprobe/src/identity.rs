//! Acts as another user for a while: effective user and group are changed, supplementary groups
//! dropped.
//!
//! Real and saved ids stay root's, so the change can be undone. A job on files runs under the
//! identity that the study requests, so a file that this user cannot open fails here as it would
//! for them.

use libc::{c_int, gid_t, uid_t};
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::isolate::Lifeline;
use crate::sys::check;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct User {
    pub uid: uid_t,
    pub gid: gid_t,
}

const KEEP: u32 = u32::MAX;

/// While this lives, the process acts as another user.
pub struct Borrowed<'a> {
    own: User,
    own_groups: Vec<gid_t>,
    lifeline: &'a Lifeline,
}

impl<'a> Borrowed<'a> {
    pub fn assume(user: User, lifeline: &'a Lifeline) -> Result<Self> {
        let borrowed = Borrowed {
            own: effective(),
            own_groups: groups()?,
            lifeline,
        };
        let doing = |what: &str| format!("{what} for user {} group {}", user.uid, user.gid);
        // From here on an error drops `borrowed`, which switches back. Groups first: afterwards we
        // lack the permission.
        // SAFETY: no groups are read from the null pointer.
        unsafe {
            check(libc::setgroups(0, std::ptr::null()), || {
                doing("drop supplementary groups")
            })?;
            check(libc::setresgid(KEEP, user.gid, KEEP), || {
                doing("change the effective group")
            })?;
            check(libc::setresuid(KEEP, user.uid, KEEP), || {
                doing("change the effective user")
            })?;
        }
        lifeline.tie();
        let found = effective();
        if found != user || !groups()?.is_empty() {
            return Err(Error::verify(format!(
                "act as user {} group {}: found user {} group {} and {} extra groups",
                user.uid,
                user.gid,
                found.uid,
                found.gid,
                groups()?.len()
            )));
        }
        Ok(borrowed)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // SAFETY: the vector is valid for its length.
        let back = unsafe {
            libc::setresuid(KEEP, self.own.uid, KEEP) == 0
                && libc::setresgid(KEEP, self.own.gid, KEEP) == 0
                && libc::setgroups(self.own_groups.len(), self.own_groups.as_ptr()) == 0
        };
        self.lifeline.tie();
        if !back || effective() != self.own {
            // A probe that cannot switch back must not do anything more.
            eprintln!("ioprobe: cannot return to user {}", self.own.uid);
            std::process::exit(70);
        }
    }
}

fn effective() -> User {
    // SAFETY: neither call can fail.
    unsafe {
        User {
            uid: libc::geteuid(),
            gid: libc::getegid(),
        }
    }
}

fn groups() -> Result<Vec<gid_t>> {
    let mut groups = vec![0; 65_536]; // NGROUPS_MAX
                                      // SAFETY: the vector has room for the requested number.
    let n = check(
        unsafe { libc::getgroups(groups.len() as c_int, groups.as_mut_ptr()) },
        || "read supplementary groups".to_string(),
    )?;
    groups.truncate(n as usize);
    Ok(groups)
}
