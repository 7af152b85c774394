//! Reading, writing and describing single files, and flushing file systems.
//!
//! `write` is one write(2), because that is how files in /proc and /sys are set: a value in two pieces would be two values.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::time::Instant;

use serde_json::{json, Value};

use crate::error::{Doing, Error, Result};
use crate::fileset::create::give_at;
use crate::protocol::{mode_text, DropCaches, MakeFolder, Path, SetTimes, Stat, Write};
use crate::sys::{c_text, check, hold, hold_parent, kind_of, open, stat, stat_at};

const READ_LIMIT: u64 = 1 << 20;

pub fn read(request: Path) -> Result<Value> {
    let doing = || format!("read {}", request.path);
    let mut data = Vec::new();
    File::open(&request.path)
        .and_then(|file| file.take(READ_LIMIT + 1).read_to_end(&mut data))
        .doing(doing)?;
    if data.len() as u64 > READ_LIMIT {
        return Err(Error::bad(format!(
            "{}: wanted at most {READ_LIMIT} bytes, found more",
            doing()
        )));
    }
    Ok(json!({"data": String::from_utf8_lossy(&data)}))
}

pub fn write(request: Write) -> Result<Value> {
    let file = open(&request.path, libc::O_WRONLY, 0)?;
    let data = request.data.as_bytes();
    // SAFETY: the slice is valid for its length.
    let written = unsafe { libc::write(file.as_raw_fd(), data.as_ptr().cast(), data.len()) };
    match written {
        -1 => Err(Error::last_os(format!(
            "write {:?} to {}",
            shortened(&request.data),
            request.path
        ))),
        n if n as usize != data.len() => Err(Error::verify(format!(
            "write {}: wanted {} bytes written, found {n}",
            request.path,
            data.len()
        ))),
        _ => Ok(json!({})),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

pub fn describe(request: Stat) -> Result<Value> {
    let status = stat(&request.path, request.follow)?;
    let nanoseconds = |seconds: i64, rest: i64| seconds * 1_000_000_000 + rest;
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
    let status = statfs(&request.path)?;
    let block = status.f_frsize.max(1) as u64;
    Ok(json!({
        "type": format!("{:#x}", status.f_type),
        "total_bytes": status.f_blocks * block,
        "free_bytes": status.f_bfree * block,
        "available_bytes": status.f_bavail * block,
        "files_free": status.f_ffree,
    }))
}

pub fn statfs(path: &str) -> Result<libc::statfs> {
    let text = c_text(path)?;
    let mut status = std::mem::MaybeUninit::uninit();
    // SAFETY: on success the kernel has filled the whole structure.
    unsafe {
        check(libc::statfs(text.as_ptr(), status.as_mut_ptr()), || {
            format!("statfs {path}")
        })?;
        Ok(status.assume_init())
    }
}

/// Of what is held open.
pub fn file_system_of(held: &OwnedFd, doing: &str) -> Result<libc::statfs> {
    let mut status = std::mem::MaybeUninit::uninit();
    // SAFETY: on success the kernel has filled the whole structure.
    unsafe {
        check(libc::fstatfs(held.as_raw_fd(), status.as_mut_ptr()), || {
            doing.to_string()
        })?;
        Ok(status.assume_init())
    }
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

/// Makes a folder, in a folder that no link leads to.
pub fn make(request: MakeFolder) -> Result<Value> {
    let doing = format!("make folder {}", request.path);
    let (folder, name) = hold_parent(&request.path, &doing)?;
    // SAFETY: the text ends with NUL.
    let made = unsafe { libc::mkdirat(folder.as_raw_fd(), name.as_ptr(), request.mode.0) };
    match check(made, || doing.clone()) {
        Err(Error::Os {
            errno: libc::EEXIST,
            ..
        }) if !request.exclusive
            && stat_at(folder.as_raw_fd(), &name, 0)
                .is_ok_and(|found| kind_of(&found) == "directory") => {}
        other => {
            other?;
            give_at(folder.as_raw_fd(), &name, request.owner, &request.path)?;
        }
    }
    Ok(json!({}))
}

/// Puts back the time of a folder's or file's last change; of a link itself, never of what it leads to.
pub fn set_times(request: SetTimes) -> Result<Value> {
    let doing = || format!("set the time of {}", request.path);
    let held = hold(&request.path, 0, &doing())?;
    let times = [
        libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        libc::timespec {
            tv_sec: request.mtime_ns.div_euclid(1_000_000_000),
            tv_nsec: request.mtime_ns.rem_euclid(1_000_000_000),
        },
    ];
    // SAFETY: the empty text ends with NUL and stands for the descriptor (Linux 5.8); there are two times.
    check(
        unsafe {
            libc::utimensat(
                held.as_raw_fd(),
                c"".as_ptr(),
                times.as_ptr(),
                libc::AT_EMPTY_PATH,
            )
        },
        doing,
    )?;
    Ok(json!({}))
}

/// When the inode was made; none where the file system does not know.
fn born(path: &str, follow: bool) -> Result<Option<i64>> {
    let text = c_text(path)?;
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    let mut status = std::mem::MaybeUninit::<libc::statx>::uninit();
    // SAFETY: on success the kernel has filled the whole structure.
    unsafe {
        check(
            libc::statx(
                libc::AT_FDCWD,
                text.as_ptr(),
                flags,
                libc::STATX_BTIME,
                status.as_mut_ptr(),
            ),
            || format!("stat {path}"),
        )?;
        let status = status.assume_init();
        let known = status.stx_mask & libc::STATX_BTIME != 0;
        let time = status.stx_btime;
        Ok(known.then(|| time.tv_sec * 1_000_000_000 + i64::from(time.tv_nsec)))
    }
}

pub fn sync_file_system(request: Path) -> Result<Value> {
    let start = Instant::now();
    syncfs(&request.path)?;
    Ok(json!({"wall_ns": start.elapsed().as_nanos() as u64}))
}

/// Writes all of a file system's dirty data and metadata, and waits for it.
pub fn syncfs(path: &str) -> Result<()> {
    let file = open(path, libc::O_RDONLY, 0)?;
    // SAFETY: no pointers are involved.
    check(unsafe { libc::syncfs(file.as_raw_fd()) }, || {
        format!("syncfs {path}")
    })?;
    Ok(())
}

pub fn sync() -> Value {
    let start = Instant::now();
    // SAFETY: no pointers are involved; it cannot fail.
    unsafe { libc::sync() };
    json!({"wall_ns": start.elapsed().as_nanos() as u64})
}

/// Dirty pages cannot be dropped, so they are written first.
pub fn drop_caches(request: DropCaches) -> Result<Value> {
    if !(1..=3).contains(&request.what) {
        return Err(Error::bad(format!(
            "request drop_caches: what: wanted 1, 2 or 3, found {}",
            request.what
        )));
    }
    sync();
    write(Write {
        path: "/proc/sys/vm/drop_caches".to_string(),
        data: format!("{}\n", request.what),
    })
}
