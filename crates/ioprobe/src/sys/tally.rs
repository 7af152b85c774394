//! Counts the content of a folder: files, folders and bytes.
//!
//! A command may leave anything behind, so links are not followed and mounts are not entered. It is
//! counted when nothing runs any more that could change it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Serialize;

use crate::error::{Doing, Result};

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Names that are not folders, including links.
    pub files: u64,
    pub folders: u64,
    /// Sizes of the files; for a link, the length of its target.
    pub bytes: u64,
}

/// Count everything below a folder, excluding the folder itself.
pub fn of(folder: &str) -> Result<Held> {
    let doing = || format!("count the files in {folder}");
    let mut held = Held::default();
    let device = fs::symlink_metadata(folder).doing(doing)?.dev();
    let mut waiting = vec![PathBuf::from(folder)];
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).doing(doing)? {
            let entry = entry.doing(doing)?;
            let status = entry.metadata().doing(doing)?;
            if !status.is_dir() {
                held.files += 1;
                held.bytes += status.len();
                continue;
            }
            held.folders += 1;
            if status.dev() == device {
                waiting.push(entry.path());
            }
        }
    }
    Ok(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_counted_and_not_followed() {
        let dir = format!("/var/tmp/ioprobe-test-{}-tally", std::process::id());
        fs::create_dir_all(format!("{dir}/in/deep")).unwrap();
        fs::write(format!("{dir}/a"), "12345").unwrap();
        fs::write(format!("{dir}/in/deep/b"), "123").unwrap();
        std::os::unix::fs::symlink("/usr", format!("{dir}/in/usr")).unwrap();
        let found = of(&dir);
        fs::remove_dir_all(&dir).unwrap();
        let wanted = Held {
            files: 3,
            folders: 2,
            bytes: 5 + 3 + 4,
        };
        assert_eq!(found.unwrap(), wanted);
        assert!(of(&dir).is_err());
    }
}
