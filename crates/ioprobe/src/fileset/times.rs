//! Access times: the states that decide whether relatime updates them, set and read back.
//!
//! The kernel's rule (fs/inode.c, relatime_need_update): update if atime <= mtime, or atime <=
//! ctime, or atime is at least a day old. ctime cannot be set, it is always now, so a file that is
//! not to be updated needs an atime in the near future.

use rustix::fs::{utimensat, AtFlags, Timespec, Timestamps, CWD};
use std::collections::BTreeMap;

use serde_json::{json, Value};

use super::{shared_out, FileSet, Registry};
use crate::clock::realtime_ns;
use crate::error::{Doing, Error, Result};
use crate::protocol::{word, AtimeState, LinkKind, OfFiles, SetAtimeState};
use crate::sys::stat;

const SECOND: i128 = 1_000_000_000;
const HOUR: i128 = 3600 * SECOND;
const DAY_SECONDS: i64 = 24 * 3600;

pub fn set_state(request: SetAtimeState, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let view = request.view.as_deref();
    let files = set.select_in(view, &request.files)?;
    let set: &FileSet = set;
    shared_out(&files, |part| {
        for index in part {
            // Read the time for each file: setting many takes longer than the second that `fresh`
            // lies in the future.
            set_times(&set.path(*index), request.state)?;
            for link in links_of(set, view, *index)? {
                set_times(&link, request.state)?;
            }
        }
        Ok(())
    })?;
    Ok(json!({"changed": files.len()}))
}

/// Return the names in the view that are symbolic links, which have an access time of their own.
fn links_of(set: &FileSet, view: Option<&str>, index: u32) -> Result<Vec<String>> {
    let name = match view {
        None => return Ok(Vec::new()),
        Some(name) => name,
    };
    let path = set.path_through(view, index)?;
    Ok(match set.view(name)?.kinds[&index] {
        LinkKind::Regular | LinkKind::Hardlink => Vec::new(),
        LinkKind::SymlinkAbsolute | LinkKind::SymlinkRelative => vec![path],
        LinkKind::SymlinkChain => super::links::hops(&path)?,
    })
}

/// Set the times of a file, or of a link itself, to a state.
pub fn set_times(path: &str, state: AtimeState) -> Result<()> {
    let now = i128::from(realtime_ns());
    let (atime, mtime) = match state {
        AtimeState::Stale => (now - HOUR, now),
        AtimeState::Fresh => (now + SECOND, now - HOUR),
        AtimeState::DayOld => (now - 25 * HOUR, now - 26 * HOUR),
    };
    let times = Timestamps {
        last_access: as_timespec(atime),
        last_modification: as_timespec(mtime),
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .doing(|| format!("set the times of {path}"))
}

fn as_timespec(ns: i128) -> Timespec {
    Timespec {
        tv_sec: ns.div_euclid(SECOND) as i64,
        tv_nsec: ns.rem_euclid(SECOND) as i64,
    }
}

pub fn get_state(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let set: &FileSet = set;
    let mut states = BTreeMap::<String, u64>::new();
    let found = shared_out(&set.select(&request.files)?, |part| {
        part.iter()
            .map(|index| state_of(&set.path(*index)))
            .collect::<Result<Vec<_>>>()
    })?;
    for state in found.into_iter().flatten() {
        *states.entry(word(state)).or_default() += 1;
    }
    Ok(json!({ "states": states }))
}

/// Return the state of the times of a file, or of a link itself.
pub fn state_of(path: &str) -> Result<AtimeState> {
    let status = stat(path, false)?;
    let now = (realtime_ns() / 1_000_000_000) as i64;
    let atime = (status.st_atime, status.st_atime_nsec);
    Ok(if now - atime.0 >= DAY_SECONDS {
        AtimeState::DayOld
    } else if atime <= (status.st_mtime, status.st_mtime_nsec)
        || atime <= (status.st_ctime, status.st_ctime_nsec)
    {
        AtimeState::Stale
    } else {
        AtimeState::Fresh
    })
}

pub fn atimes(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let mut all = Vec::new();
    for index in set.select(&request.files)? {
        let status = stat(&set.path(index), false)?;
        all.push(i128::from(status.st_atime) * SECOND + i128::from(status.st_atime_nsec));
    }
    match (all.iter().max(), all.iter().min()) {
        (Some(newest), Some(oldest)) => Ok(json!({
            // Too large for a double and, in large sets, for 64 bits.
            "sum_ns": all.iter().sum::<i128>().to_string(),
            "newest_ns": *newest as i64,
            "oldest_ns": *oldest as i64,
        })),
        _ => Err(Error::bad(format!(
            "access times of {}: expected at least one file",
            request.set
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_that_was_set_is_the_one_found() {
        let path = std::env::temp_dir().join(format!("iotrial-times-{}", std::process::id()));
        std::fs::write(&path, "x").unwrap();
        let name = path.to_str().unwrap();
        for state in [AtimeState::Stale, AtimeState::Fresh, AtimeState::DayOld] {
            set_times(name, state).unwrap();
            assert_eq!(state_of(name).unwrap(), state);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
