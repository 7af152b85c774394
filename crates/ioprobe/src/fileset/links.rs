//! Views: other names for the files of a set, by every kind of link, and their removal.
//!
//! A view mirrors the folders of its set, so a path through it differs from the plain one only in
//! the link. The kind `regular` moves the file itself: the reference, a plain file in a folder of
//! that name.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

use serde_json::{json, Value};

use super::create::make_folders;
use super::{FileSet, Registry, View};
use crate::error::{Doing, Error, Result};
use crate::protocol::{Link, LinkKind, OfView};
use crate::sys::remove;
use crate::sys::{c_text, exists, make_folder, stat};

/// The kernel follows at most 40 links in a path (MAXSYMLINKS).
const LONGEST_CHAIN: u32 = 40;

pub fn link(request: Link, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let view = request.view.as_str();
    if view.is_empty()
        || !view
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c))
    {
        return Err(Error::bad(format!(
            "view: a name may contain letters, digits, - and _, found {view:?}"
        )));
    }
    if request.kind == LinkKind::SymlinkChain && !(2..=LONGEST_CHAIN).contains(&request.chain) {
        return Err(Error::bad(format!(
            "chain: expected 2 to {LONGEST_CHAIN} links, found {}",
            request.chain
        )));
    }
    let files = set.select(&request.files)?;
    if let Some(away) = files
        .iter()
        .find(|n| set.files[**n as usize].moved_to.is_some())
    {
        return Err(Error::bad(format!(
            "view {view} of {}: file {away} has already been moved to another view",
            set.dir
        )));
    }
    make_room(set, view, request.kind)?;
    for index in &files {
        make_name(set, view, *index, request.kind, request.chain)?;
        if request.kind == LinkKind::Regular {
            set.files[*index as usize].moved_to = Some(view.to_string());
        }
        let known = set.views.entry(view.to_string()).or_default();
        known.kinds.insert(*index, request.kind);
    }
    Ok(json!({"made": files.len()}))
}

/// Create the folders of a view. Those of a new view must not exist: removing the view would remove
/// everything in them.
fn make_room(set: &mut FileSet, view: &str, kind: LinkKind) -> Result<()> {
    let root = set.root(Some(view));
    let chain = format!("{root}.chain");
    if !set.views.contains_key(view) {
        if exists(&chain)? {
            return Err(Error::errno(format!("make folder {chain}"), libc::EEXIST));
        }
        make_folder(&root, 0o755)?;
        set.views.insert(view.to_string(), View::default());
        make_folders(set, Some(view), None)?;
    }
    if kind == LinkKind::SymlinkChain && !exists(&chain)? {
        make_folder(&chain, 0o755)?;
    }
    Ok(())
}

fn make_name(set: &FileSet, view: &str, index: u32, kind: LinkKind, chain: u32) -> Result<()> {
    let (file, name) = (set.path(index), set.name_in(Some(view), index));
    let base = set.dir.rsplit('/').next().unwrap_or(&set.dir);
    let up = if set.directories == 1 { ".." } else { "../.." };
    let home = format!("{base}/{}", set.relative(index));
    match kind {
        LinkKind::Regular => {
            // A rename would replace an existing file.
            if exists(&name)? {
                return Err(Error::errno(format!("move {file} to {name}"), libc::EEXIST));
            }
            fs::rename(&file, &name).doing(|| format!("move {file} to {name}"))
        }
        LinkKind::Hardlink => {
            let (from, to) = (c_text(&file)?, c_text(&name)?);
            rustix::fs::link(&from, &to).doing(|| format!("link {name} to {file}"))?;
            Ok(())
        }
        LinkKind::SymlinkAbsolute => make_symlink(&file, &name),
        LinkKind::SymlinkRelative => make_symlink(&format!("{up}/{home}"), &name),
        LinkKind::SymlinkChain => {
            // From the file outwards, so that the chain is complete when its first name appears.
            let folder = format!("{}.chain", set.root(Some(view)));
            let hop = |number: u32| format!("f{index:06}.{number}");
            make_symlink(&format!("../{home}"), &format!("{folder}/{}", hop(chain)))?;
            for number in (2..chain).rev() {
                make_symlink(&hop(number + 1), &format!("{folder}/{}", hop(number)))?;
            }
            make_symlink(&format!("{up}/{base}.{view}.chain/{}", hop(2)), &name)
        }
    }
}

fn make_symlink(target: &str, name: &str) -> Result<()> {
    symlink(target, name).doing(|| format!("link {name} to {target}"))
}

/// Query the kernel for the kind of each name in a view.
pub fn get(request: OfView, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let mut kinds = BTreeMap::<&str, u64>::new();
    for index in set.select_in(Some(&request.view), &request.files)? {
        let name = set.path_through(Some(&request.view), index)?;
        let status = stat(&name, false)?;
        let (found, file) = (stat(&name, true)?, stat(&set.path(index), false)?);
        if (found.st_dev, found.st_ino) != (file.st_dev, file.st_ino) {
            return Err(Error::verify(format!(
                "check {name}: expected a link to inode {}, found {}",
                file.st_ino, found.st_ino
            )));
        }
        let kind = match status.st_mode & libc::S_IFMT {
            libc::S_IFREG if status.st_nlink > 1 => "hardlink",
            libc::S_IFREG => "regular",
            libc::S_IFLNK if hops(&name)?.len() > 1 => "symlink-chain",
            libc::S_IFLNK if target_of(&name)?.starts_with('/') => "symlink-absolute",
            libc::S_IFLNK => "symlink-relative",
            _ => "other",
        };
        *kinds.entry(kind).or_default() += 1;
    }
    Ok(json!({ "kinds": kinds }))
}

/// Return the symbolic links on the path from a name to its file.
pub fn hops(name: &str) -> Result<Vec<String>> {
    let mut hops = Vec::new();
    let mut name = name.to_string();
    while stat(&name, false)?.st_mode & libc::S_IFMT == libc::S_IFLNK {
        if hops.len() > LONGEST_CHAIN as usize {
            return Err(Error::errno(format!("follow {}", hops[0]), libc::ELOOP));
        }
        let target = target_of(&name)?;
        let next = match name.rsplit_once('/') {
            Some((folder, _)) if !target.starts_with('/') => format!("{folder}/{target}"),
            _ => target,
        };
        hops.push(std::mem::replace(&mut name, next));
    }
    Ok(hops)
}

fn target_of(name: &str) -> Result<String> {
    let target = fs::read_link(name).doing(|| format!("readlink {name}"))?;
    Ok(target.to_string_lossy().into_owned())
}

/// Remove a view, or some of its names, and move files back that were moved. A missing view is not
/// an error.
pub fn unlink(request: OfView, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let view = request.view.as_str();
    if !set.views.contains_key(view) {
        return Ok(json!({"removed": 0}));
    }
    let names = set.select_in(Some(view), &request.files)?;
    for index in &names {
        let (name, home) = (
            set.path_through(Some(view), *index)?,
            set.name_in(None, *index),
        );
        match set.view(view)?.kinds[index] {
            LinkKind::Regular => {
                // A job may have unlinked the file.
                if set.files[*index as usize].exists {
                    fs::rename(&name, &home).doing(|| format!("move {name} to {home}"))?;
                }
                set.files[*index as usize].moved_to = None;
            }
            LinkKind::SymlinkChain => {
                for link in hops(&name)? {
                    fs::remove_file(&link).doing(|| format!("unlink {link}"))?;
                }
            }
            _ => fs::remove_file(&name).doing(|| format!("unlink {name}"))?,
        }
        if let Some(known) = set.views.get_mut(view) {
            known.kinds.remove(index);
        }
    }
    if request.files.is_none() {
        let root = set.root(Some(view));
        remove::tree(&format!("{root}.chain"))?;
        remove::tree(&root)?;
        set.views.remove(view);
    }
    Ok(json!({"removed": names.len()}))
}
