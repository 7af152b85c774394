//! Copies files next to themselves, like cp(1), and replaces the originals by the copies or
//! discards the copies.

use std::os::unix::io::{AsRawFd, OwnedFd};
use std::time::Instant;

use serde_json::{json, Value};

use super::create::Writer;
use super::{FileSet, Registry};
use crate::error::{Doing, Result};
use crate::protocol::{CopyFiles, OfFiles};
use crate::sys::{check, open, stat, Stat};

/// Copy the files. Each copy is synced before it replaces the old file or is removed, so that both
/// cases write the same amount.
pub fn copy_files(request: CopyFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let files = set.select(&request.files)?;
    let largest = files.iter().map(|n| set.files[*n as usize].size).max();
    let mut writer = Writer::new(set.content, largest.unwrap_or(0));
    let start = Instant::now();
    for index in &files {
        let (path, copy) = (set.path(*index), format!("{}.copy", set.path(*index)));
        let done = one(set, *index, &path, &copy, &mut writer);
        if done.is_ok() && request.keep {
            std::fs::rename(&copy, &path).doing(|| format!("rename {copy} to {path}"))?;
        } else {
            let removed = std::fs::remove_file(&copy).doing(|| format!("remove {copy}"));
            done.and(removed)?;
        }
    }
    Ok(json!({"copied": files.len(), "wall_ns": start.elapsed().as_nanos() as u64}))
}

fn one(set: &FileSet, index: u32, path: &str, copy: &str, writer: &mut Writer) -> Result<()> {
    let old = stat(path, false)?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
    let file = open(copy, flags, 0o600)?;
    writer.write(&file, index, set.files[index as usize].size, copy)?;
    give(&file, &old, copy)?;
    rustix::fs::fsync(&file).doing(|| format!("fsync {copy}"))?;
    Ok(())
}

/// Copy owner and mode of the old file. The owner first, because changing it clears the special
/// bits.
fn give(file: &OwnedFd, old: &Stat, copy: &str) -> Result<()> {
    let fd = file.as_raw_fd();
    let doing = || format!("set owner and mode of {copy} as on the original");
    // SAFETY: no pointers are involved.
    unsafe {
        check(libc::fchown(fd, old.st_uid, old.st_gid), doing)?;
        check(libc::fchmod(fd, old.st_mode & 0o7777), doing)?;
    }
    Ok(())
}

/// Return the paths of the selected files, for a program that takes them by name.
pub fn paths(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let files = set.select(&request.files)?;
    let paths = files.into_iter().map(|index| set.path(index));
    Ok(json!({ "paths": paths.collect::<Vec<_>>() }))
}
