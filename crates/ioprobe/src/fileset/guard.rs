//! What a command of another user may have put where files of a set were.
//!
//! File sets belong to the user whose commands work on them, and root then sets modes, truncates and reads by the same
//! names. A name that has become a link would lead root to any file of the machine. So after every command of another
//! user, when nothing of it runs any more, all names of all sets are looked at; a set in which one is neither what it
//! was nor gone is not touched again. (Looking before a job instead would cache the very inodes that are to be cold.)

use super::{FileSet, Registry};
use crate::error::{Error, Result};
use crate::sys::stat;

/// Looks at every set that is known.
pub fn inspect(registry: &mut Registry) -> Result<()> {
    let mut first = Ok(());
    for set in registry.sets.values_mut() {
        if let Err(error) = inspect_set(set) {
            set.spoiled = Some(error.to_string());
            first = first.and(Err(error));
        }
    }
    first
}

fn inspect_set(set: &FileSet) -> Result<()> {
    expect(&set.root(None), libc::S_IFDIR, "a folder")?;
    if set.directories > 1 {
        for folder in set.folders(None) {
            expect(&folder, libc::S_IFDIR, "a folder")?;
        }
    }
    for index in 0..set.files.len() as u32 {
        expect(&set.path(index), libc::S_IFREG, "a regular file")?;
    }
    Ok(())
}

/// A name that is gone leads nowhere.
fn expect(path: &str, kind: libc::mode_t, wanted: &str) -> Result<()> {
    match stat(path, false) {
        Ok(status) if status.st_mode & libc::S_IFMT == kind => Ok(()),
        Ok(status) => Err(Error::verify(format!(
            "look at {path} after a command: wanted {wanted}, found a file of type {:#o}; its set is not touched again",
            status.st_mode & libc::S_IFMT
        ))),
        Err(Error::Os {
            errno: libc::ENOENT,
            ..
        }) => Ok(()),
        Err(error) => Err(error),
    }
}
