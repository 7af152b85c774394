//! Creates the files of a set, and rewrites them at another size.

use rustix::fs::{chownat, AtFlags, Gid, Uid, CWD};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::os::unix::io::OwnedFd;
use std::time::Instant;

use serde_json::{json, Value};

use super::{FileSet, FileState, Registry};
use crate::content::{Content, Kind};
use crate::error::{Doing, Error, Result};
use crate::identity::User;
use crate::protocol::{mode_text, MakeSet, OfFiles, SetMode, SetSize};
use crate::sys::{c_text, make_folder, set_mode, stat, try_open, write_all};

const MOST_FILES: u32 = 1_000_000; // six digits in a name
const MOST_FOLDERS: u32 = 1_000; // three digits
const LARGEST: u64 = 1 << 40; // the sizes of a million of them add up to less than 2^63
const PIECE: usize = 1 << 20;

/// Writes file content from a buffer; constant content (zeros) is generated only once.
pub struct Writer {
    content: Content,
    piece: Vec<u8>,
}

impl Writer {
    pub fn new(content: Content, largest: u64) -> Self {
        Writer {
            content,
            piece: vec![0; largest.min(PIECE as u64) as usize],
        }
    }

    pub fn write(&mut self, file: &OwnedFd, index: u32, size: u64, path: &str) -> Result<()> {
        let mut offset = 0;
        while offset < size {
            let n = (size - offset).min(PIECE as u64) as usize;
            let piece = &mut self.piece[..n];
            if self.content.kind != Kind::Zeros {
                self.content.fill(index, offset, piece);
            }
            write_all(file, piece, path)?;
            offset += n as u64;
        }
        Ok(())
    }
}

/// Create (or only register) a set. It replaces a set of the same name; its files are not
/// touched.
pub fn make(request: MakeSet, registry: &mut Registry) -> Result<Value> {
    let start = Instant::now();
    let doing = format!("make set {}", request.set);
    if request.count > MOST_FILES || !(1..=MOST_FOLDERS).contains(&request.directories) {
        return Err(Error::bad(format!(
            "{doing}: expected at most {MOST_FILES} files in 1 to {MOST_FOLDERS} folders, found {} in {}",
            request.count, request.directories
        )));
    }
    check_size(request.size, &doing)?;
    let dir = request.dir.trim_end_matches('/').to_string();
    if !dir.starts_with('/') {
        return Err(Error::bad(format!(
            "{doing}: dir: expected an absolute path, found {:?}",
            request.dir
        )));
    }
    let set = FileSet {
        dir,
        directories: request.directories,
        content: Content {
            kind: request.content,
            seed: request.seed,
        },
        mode: request.mode.0,
        files: vec![
            FileState {
                size: if request.empty { 0 } else { request.size },
                whole: request.size,
                exists: !request.empty,
                moved_to: None,
            };
            request.count as usize
        ],
        views: BTreeMap::new(),
        spoiled: None,
    };
    if request.create {
        make_folders(&set, None, request.owner)?;
        if !request.empty {
            make_files(&set, request.size, request.owner)?;
        }
    }
    let files = set.files.iter().filter(|file| file.exists).count() as u64;
    let bytes = files * request.size;
    registry.put(request.set, set);
    Ok(json!({
        "files": files,
        "bytes": bytes,
        "wall_ns": start.elapsed().as_nanos() as u64,
    }))
}

fn check_size(size: u64, doing: &str) -> Result<()> {
    if size > LARGEST {
        return Err(Error::bad(format!(
            "{doing}: size: expected at most {LARGEST} bytes per file, found {size}"
        )));
    }
    Ok(())
}

/// Create the folders that hold the names of a set or of a view. Existing ones are fine.
pub fn make_folders(set: &FileSet, view: Option<&str>, owner: Option<User>) -> Result<()> {
    let root = set.root(view);
    let mut folders = vec![root.clone()];
    if set.directories > 1 {
        folders.extend(set.folders(view));
    }
    for folder in folders {
        match make_folder(&folder, 0o755) {
            Ok(()) => give_to(&folder, owner)?,
            Err(Error::Os {
                errno: libc::EEXIST,
                ..
            }) => {}
            Err(Error::Os {
                errno: libc::ENOENT,
                ..
            }) if folder == root => {
                std::fs::create_dir_all(&folder).doing(|| format!("make folder {folder}"))?;
                give_to(&folder, owner)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Change the owner; of a link, the owner of the link itself.
pub fn give_to(path: &str, owner: Option<User>) -> Result<()> {
    give_at(CWD, &c_text(path)?, owner, path)
}

/// Change the owner of a name in an open folder. `path` is for the message.
pub fn give_at(folder: impl AsFd, name: &CStr, owner: Option<User>, path: &str) -> Result<()> {
    if let Some(owner) = owner {
        let (user, group) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        chownat(folder, name, Some(user), Some(group), flags).doing(|| {
            format!(
                "change the owner of {path} to user {} group {}",
                owner.uid, owner.gid
            )
        })?;
    }
    Ok(())
}

fn make_files(set: &FileSet, size: u64, owner: Option<User>) -> Result<()> {
    let mut writer = Writer::new(set.content, size);
    for index in 0..set.files.len() as u32 {
        let path = set.path(index);
        // O_EXCL: an existing file may belong to somebody else.
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
        let file = try_open(&c_text(&path)?, flags, set.mode & 0o777)
            .map_err(|errno| Error::errno(format!("make file {path}"), errno))?;
        writer.write(&file, index, size, &path)?;
        if let Some(owner) = owner {
            rustix::fs::fchown(
                &file,
                Some(rustix::fs::Uid::from_raw(owner.uid)),
                Some(rustix::fs::Gid::from_raw(owner.gid)),
            )
            .doing(|| {
                format!(
                    "change the owner of {path} to user {} group {}",
                    owner.uid, owner.gid
                )
            })?;
        }
        // Writing and changing the owner clear the special bits.
        if set.mode & 0o7000 != 0 {
            rustix::fs::fchmod(&file, rustix::fs::Mode::from_bits_retain(set.mode))
                .doing(|| format!("set the mode of {path}"))?;
        }
    }
    Ok(())
}

/// Rewrite files in place, keeping their inodes, at another size.
pub fn set_size(request: SetSize, registry: &mut Registry) -> Result<Value> {
    check_size(request.size, &format!("rewrite files of {}", request.set))?;
    let set = registry.get(&request.set)?;
    let files = set.select(&request.files)?;
    let mut writer = Writer::new(set.content, request.size);
    for index in &files {
        let path = set.path(*index);
        let file = open_for_rewriting(&path)?;
        writer.write(&file, *index, request.size, &path)?;
        let file = &mut set.files[*index as usize];
        (file.size, file.whole) = (request.size, request.size);
    }
    Ok(json!({"changed": files.len()}))
}

/// Open and truncate a file. A mode without write permission stops an owner who is not root, so
/// write permission is added while opening.
pub fn open_for_rewriting(path: &str) -> Result<OwnedFd> {
    let text = c_text(path)?;
    let flags = libc::O_WRONLY | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    match try_open(&text, flags, 0) {
        Ok(file) => Ok(file),
        Err(libc::EACCES) => {
            let mode = stat(path, false)?.st_mode & 0o7777;
            let change = |mode| {
                rustix::fs::chmod(&text, rustix::fs::Mode::from_bits_retain(mode))
                    .doing(|| format!("set the mode of {path}"))
            };
            change(mode | 0o200)?;
            let file = try_open(&text, flags, 0);
            change(mode)?;
            file.map_err(|errno| Error::errno(format!("open {path} for writing"), errno))
        }
        Err(errno) => Err(Error::errno(format!("open {path} for writing"), errno)),
    }
}

// Modes and sizes of a set's files: set, and read back from the kernel.

pub fn set(request: SetMode, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let files = set.select(&request.files)?;
    for index in &files {
        set_mode(&set.path(*index), request.mode.0)?;
    }
    Ok(json!({"changed": files.len()}))
}

pub fn get(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let mut modes = BTreeMap::<String, u64>::new();
    for index in set.select(&request.files)? {
        let mode = stat(&set.path(index), false)?.st_mode;
        *modes.entry(mode_text(mode)).or_default() += 1;
    }
    Ok(json!({ "modes": modes }))
}

pub fn sizes(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let mut sizes = BTreeMap::<String, u64>::new();
    for index in set.select(&request.files)? {
        let size = stat(&set.path(index), false)?.st_size;
        *sizes.entry(size.to_string()).or_default() += 1;
    }
    Ok(json!({ "sizes": sizes }))
}
