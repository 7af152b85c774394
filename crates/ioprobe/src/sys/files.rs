//! Reading, writing and describing single files, and flushing file systems.
//!
//! `write` is a single write(2), as files in /proc and /sys require: a value in two pieces would be
//! two values.

use std::fs::{self, File};
use std::io::Read;
use std::time::Instant;

use rustix::fs::{statx, AtFlags, Mode, StatxFlags, Timespec, Timestamps, CWD, UTIME_OMIT};
use rustix::io::Errno;
use serde_json::{json, Value};

use crate::error::{Doing, Error, Result};
use crate::fileset::create::give_at;
use crate::protocol::{mode_text, DropCaches, MakeFolder, Path, SetTimes, Stat, Write};
use crate::sys::{hold, hold_parent, kind_of, open, stat};

const READ_LIMIT: u64 = 1 << 20;

pub fn read(request: Path) -> Result<Value> {
    let doing = || format!("read {}", request.path);
    let mut data = Vec::new();
    File::open(&request.path)
        .and_then(|file| file.take(READ_LIMIT + 1).read_to_end(&mut data))
        .doing(doing)?;
    if data.len() as u64 > READ_LIMIT {
        return Err(Error::bad(format!(
            "{}: larger than {READ_LIMIT} bytes",
            doing()
        )));
    }
    Ok(json!({"data": String::from_utf8_lossy(&data)}))
}

pub fn write(request: Write) -> Result<Value> {
    let file = open(&request.path, libc::O_WRONLY, 0)?;
    let data = request.data.as_bytes();
    let written = rustix::io::write(&file, data)
        .doing(|| format!("write {:?} to {}", shortened(&request.data), request.path))?;
    if written != data.len() {
        return Err(Error::verify(format!(
            "write {}: short write: {written} of {} bytes",
            request.path,
            data.len()
        )));
    }
    Ok(json!({}))
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

pub fn describe(request: Stat) -> Result<Value> {
    let status = stat(&request.path, request.follow)?;
    let nanoseconds = |seconds: i64, rest: u64| seconds * 1_000_000_000 + rest as i64;
    let device = |number: u64| [libc::major(number), libc::minor(number)];
    Ok(json!({
        "kind": kind_of(&status),
        "mode": mode_text(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "size": status.st_size,
        "inode": status.st_ino,
        "device": device(status.st_dev),
        "rdevice": device(status.st_rdev),
        "links": status.st_nlink,
        "atime_ns": nanoseconds(status.st_atime, status.st_atime_nsec),
        "mtime_ns": nanoseconds(status.st_mtime, status.st_mtime_nsec),
        "ctime_ns": nanoseconds(status.st_ctime, status.st_ctime_nsec),
        "btime_ns": born(&request.path, request.follow)?,
        "blocks": status.st_blocks,
    }))
}

pub fn file_system(request: Path) -> Result<Value> {
    let path = &request.path;
    let status = rustix::fs::statfs(path.as_str()).doing(|| format!("statfs {path}"))?;
    let block = status.f_frsize.max(1) as u64;
    Ok(json!({
        "type": format!("{:#x}", status.f_type),
        "total_bytes": status.f_blocks * block,
        "free_bytes": status.f_bfree * block,
        "available_bytes": status.f_bavail * block,
        "files_free": status.f_ffree,
    }))
}

pub fn list(request: Path) -> Result<Value> {
    let doing = || format!("list {}", request.path);
    let mut names = fs::read_dir(&request.path)
        .doing(doing)?
        .map(|entry| entry.map(|e| e.file_name().to_string_lossy().into_owned()))
        .collect::<std::io::Result<Vec<String>>>()
        .doing(doing)?;
    names.sort_unstable();
    Ok(json!({ "names": names }))
}

pub fn read_link(request: Path) -> Result<Value> {
    let target = fs::read_link(&request.path).doing(|| format!("readlink {}", request.path))?;
    Ok(json!({"target": target.to_string_lossy()}))
}

/// Create a folder, in a parent that is reached without links.
pub fn make(request: MakeFolder) -> Result<Value> {
    let doing = format!("make folder {}", request.path);
    let (folder, name) = hold_parent(&request.path, &doing)?;
    match rustix::fs::mkdirat(&folder, &name, Mode::from_bits_retain(request.mode.0)) {
        Err(Errno::EXIST)
            if !request.exclusive
                && rustix::fs::statat(&folder, &name, AtFlags::empty())
                    .is_ok_and(|found| kind_of(&found) == "directory") => {}
        made => {
            made.doing(|| doing.clone())?;
            give_at(&folder, &name, request.owner, &request.path)?;
        }
    }
    Ok(json!({}))
}

/// Restore the mtime of a folder or file; of a link itself, never of its target.
pub fn set_times(request: SetTimes) -> Result<Value> {
    let doing = || format!("set the time of {}", request.path);
    let held = hold(&request.path, 0, &doing())?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: request.mtime_ns.div_euclid(1_000_000_000),
            tv_nsec: request.mtime_ns.rem_euclid(1_000_000_000),
        },
    };
    // The empty name stands for the descriptor (Linux 5.8).
    rustix::fs::utimensat(&held, c"", &times, AtFlags::EMPTY_PATH).doing(doing)?;
    Ok(json!({}))
}

/// Return the creation time of the inode; None if the file system does not record it.
fn born(path: &str, follow: bool) -> Result<Option<i64>> {
    let flags = match follow {
        true => AtFlags::empty(),
        false => AtFlags::SYMLINK_NOFOLLOW,
    };
    let status = statx(CWD, path, flags, StatxFlags::BTIME).doing(|| format!("stat {path}"))?;
    let known = StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::BTIME);
    let time = status.stx_btime;
    Ok(known.then(|| time.tv_sec * 1_000_000_000 + i64::from(time.tv_nsec)))
}

pub fn sync_file_system(request: Path) -> Result<Value> {
    let start = Instant::now();
    syncfs(&request.path)?;
    Ok(json!({"wall_ns": start.elapsed().as_nanos() as u64}))
}

/// Make one file durable, or the names in one folder.
pub fn sync_one(request: Path) -> Result<Value> {
    let file = open(&request.path, libc::O_RDONLY, 0)?;
    rustix::fs::fsync(&file).doing(|| format!("fsync {}", request.path))?;
    Ok(json!({}))
}

/// Write all dirty data and metadata of a file system, and wait for it.
pub fn syncfs(path: &str) -> Result<()> {
    let file = open(path, libc::O_RDONLY, 0)?;
    rustix::fs::syncfs(&file).doing(|| format!("syncfs {path}"))?;
    Ok(())
}

pub fn sync() -> Value {
    let start = Instant::now();
    rustix::fs::sync();
    json!({"wall_ns": start.elapsed().as_nanos() as u64})
}

/// Drop caches. Dirty pages cannot be dropped, so they are written first.
pub fn drop_caches(request: DropCaches) -> Result<Value> {
    if !(1..=3).contains(&request.what) {
        return Err(Error::bad(format!(
            "request drop_caches: what: expected 1, 2 or 3, found {}",
            request.what
        )));
    }
    sync();
    write(Write {
        path: "/proc/sys/vm/drop_caches".to_string(),
        data: format!("{}\n", request.what),
    })
}
