//! Checks what a `files` job did against what it had to do, and updates the registry.
//!
//! A time means nothing unless the work is known to have been done.

use super::expect::{is_symlink, Expected, Fate};
use super::timed::Tally;
use crate::error::{Error, Result};
use crate::fileset::FileSet;
use crate::protocol::{LinkKind, Operation};
use crate::sys::stat;

pub fn changes_names_or_sizes(operation: Operation) -> bool {
    use Operation::{Create, OpenTruncate, Unlink, WriteAll, WriteByte};
    matches!(
        operation,
        Create | OpenTruncate | Unlink | WriteByte | WriteAll
    )
}

/// Check the counts against the expected ones. With `look`, also check names and sizes against the
/// kernel. For a job that only reads, the counts are enough, and looking at every file again would
/// take as long as the job.
pub fn verify(
    set: &mut FileSet,
    view: Option<&str>,
    expected: &Expected,
    tally: &Tally,
    look: bool,
) -> Result<()> {
    let links = if look {
        let looked = look_at(set, view, &expected.fates);
        take_over(set, view, &expected.fates);
        looked?
    } else {
        Some(0)
    };
    let mut counts = vec![
        ("bytes read", expected.bytes_read, tally.bytes_read),
        ("bytes written", expected.bytes_written, tally.bytes_written),
        ("entries listed", expected.entries, tally.entries),
        ("bytes by stat", expected.stat_bytes, tally.stat_bytes),
        ("bytes by fstat", expected.fstat_bytes, tally.fstat_bytes),
    ];
    if let Some(links) = links {
        let each = expected.fates.len().max(1) as u64;
        let lstats = expected.lstat_bytes + links * (expected.lstats / each);
        counts.push(("bytes by lstat", lstats, tally.lstat_bytes));
        let readlinks = links * (expected.readlinks / each);
        counts.push(("bytes by readlink", readlinks, tally.link_bytes));
    }
    match counts.iter().find(|(_, wanted, found)| wanted != found) {
        Some((what, wanted, found)) => Err(Error::verify(format!(
            "work on files of {}: expected {wanted} {what}, found {found}",
            set.dir
        ))),
        None => Ok(()),
    }
}

/// Check that names and sizes are as expected. Return the total length of the symbolic links, or
/// None if the job has removed some of them.
fn look_at(set: &FileSet, view: Option<&str>, fates: &[Fate]) -> Result<Option<u64>> {
    let mut links = Some(0);
    for fate in fates {
        let path = set.path_through(view, fate.index)?;
        match stat(&path, false) {
            Err(Error::Os {
                errno: libc::ENOENT,
                ..
            }) if !fate.name_exists => {
                if is_symlink(fate.kind) {
                    links = None;
                }
                continue;
            }
            Ok(_) if !fate.name_exists => {
                return Err(Error::verify(format!("unlink {path}: it still exists")))
            }
            Ok(name) if is_symlink(fate.kind) => {
                links = links.map(|sum| sum + name.st_size as u64);
            }
            other => drop(other?),
        }
        let size = stat(&path, true)?.st_size as u64;
        if size != fate.size {
            return Err(Error::verify(format!(
                "work on {path}: expected size {} after the job, found {size}",
                fate.size
            )));
        }
    }
    Ok(links)
}

/// Update the registry to what the kernel shows, whether the job succeeded or failed.
pub fn take_over(set: &mut FileSet, view: Option<&str>, fates: &[Fate]) {
    for fate in fates {
        let path = match set.path_through(view, fate.index) {
            Ok(path) => path,
            Err(_) => continue,
        };
        let found = stat(&path, true).ok();
        let is_file_itself = matches!(fate.kind, None | Some(LinkKind::Regular));
        let file = &mut set.files[fate.index as usize];
        match found {
            Some(status) => {
                file.size = status.st_size as u64;
                file.exists = true;
            }
            None if is_file_itself => file.exists = false,
            None => {}
        }
        if found.is_none() && view.is_some() && !is_file_itself {
            if let Some(known) = view.and_then(|name| set.views.get_mut(name)) {
                known.kinds.remove(&fate.index);
            }
        }
    }
}
