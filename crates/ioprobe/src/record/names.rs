//! The names beneath the recorded folder: how they were at the start, and which file each means now.
//!
//! A name is a path relative to the folder, as in the trace. Paths are resolved as text, with the
//! links that are known; what an open has found (device and inode) overrides that.

use std::collections::{HashMap, HashSet};
use std::fs::{self, Metadata};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use iotrace::FileKind;

use crate::fileset::extents;

/// Names that are looked at before the start. Others are looked at when they are first used.
pub const MOST_WALKED: usize = 1 << 18;
const MOST_LINKS: usize = 40;
/// Folders outside, of which the real place is remembered.
const MOST_FOLDERS: usize = 1 << 14;
/// File systems without files of their own.
const OF_THE_KERNEL: [&str; 14] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "devtmpfs",
    "devpts",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
    "bpf",
    "mqueue",
    "pstore",
    "autofs",
];

/// A file's identity in the kernel: device of the file system, and inode.
pub type Inode = (u32, u64);

/// What is known of a name.
pub struct Name {
    pub path: Rc<[u8]>,
    pub kind: FileKind,
    /// Bytes at the start; None: it did not exist.
    pub size: Option<u64>,
    pub stored: u64,
    pub extents: u32,
    pub position: u64,
    /// The number in the trace, if it has been used.
    pub id: Option<u32>,
    inode: Option<Inode>,
}

/// How a name was before its first use.
#[derive(Clone, Copy)]
pub struct First {
    pub kind: FileKind,
    pub size: Option<u64>,
    pub stored: u64,
}

impl First {
    pub const fn missing(kind: FileKind) -> Self {
        First {
            kind,
            size: None,
            stored: 0,
        }
    }
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Relative to the folder.
    Inside(Vec<u8>),
    /// Absolute.
    Outside(Vec<u8>),
}

pub struct Names {
    /// The folder, absolute, as the recorded process sees it. Empty for the root.
    under: Vec<u8>,
    /// The root of that process, seen from here.
    root: PathBuf,
    all: Vec<Name>,
    by_path: HashMap<Rc<[u8]>, u32>,
    by_inode: HashMap<Inode, u32>,
    /// Symbolic links inside, with their targets.
    links: HashMap<Rc<[u8]>, Vec<u8>>,
    folders: HashMap<Vec<u8>, Vec<u8>>,
    /// Devices with file systems that do not report where files are.
    without_extents: HashSet<u32>,
    /// Whether all names of the start are known.
    pub complete: bool,
}

impl Names {
    /// Know no name yet. `under`: an absolute path without links, as a process with this root sees
    /// it.
    pub fn new(under: &[u8], root: &Path) -> Self {
        Names {
            under: plain(under),
            root: root.to_path_buf(),
            all: Vec::new(),
            by_path: HashMap::new(),
            by_inode: HashMap::new(),
            links: HashMap::new(),
            folders: HashMap::new(),
            without_extents: HashSet::new(),
            complete: false,
        }
    }

    /// Look at everything in the folder. `mounts`: the text of /proc/PID/mountinfo.
    pub fn walk(&mut self, mounts: &str, most: usize) {
        let mounts = Mounts::parse(mounts);
        let mut devices = HashMap::new();
        let mut left: Vec<Vec<u8>> = vec![Vec::new()];
        if let Ok(own) = fs::metadata(self.reach(b"")) {
            let device = mounts.device(&self.absolute(b""), own.dev(), &mut devices);
            self.add_walked(b"", &own, device);
        }
        while let Some(folder) = left.pop() {
            let absolute = self.absolute(&folder);
            if mounts.is_of_the_kernel(&absolute) {
                continue;
            }
            let entries = match fs::read_dir(self.reach(&folder)) {
                Ok(entries) => entries,
                Err(_) => continue,
            };
            for entry in entries.flatten() {
                if self.all.len() >= most {
                    return;
                }
                let found = match entry.metadata() {
                    Ok(found) => found,
                    Err(_) => continue,
                };
                let path = joined(&folder, entry.file_name().as_bytes());
                let device = mounts.device(&absolute, found.dev(), &mut devices);
                self.add_walked(&path, &found, device);
                if found.file_type().is_symlink() {
                    if let Ok(target) = fs::read_link(entry.path()) {
                        self.link(&path, target.as_os_str().as_bytes());
                    }
                } else if found.is_dir() {
                    left.push(path);
                }
            }
        }
        self.complete = true;
    }

    fn add_walked(&mut self, path: &[u8], found: &Metadata, device: u32) {
        let first = First {
            kind: kind_of(found),
            size: Some(if found.is_file() { found.len() } else { 0 }),
            stored: found.blocks() * 512,
        };
        let name = self.add(path, first);
        self.set_inode(name, (device, found.ino()));
        if found.is_file() && found.blocks() > 0 {
            self.look_up_extents(name, path, device);
        }
    }

    /// Ask where a file is on its disk, unless its file system has refused that before.
    fn look_up_extents(&mut self, name: u32, path: &[u8], device: u32) {
        if self.without_extents.contains(&device) {
            return;
        }
        let mut options = fs::OpenOptions::new();
        let quietly = libc::O_NOATIME | libc::O_NONBLOCK | libc::O_NOFOLLOW;
        let opened = options.read(true).custom_flags(quietly);
        let Ok(file) = opened.open(self.reach(path)) else {
            return;
        };
        match extents::on_disk(&file.into()) {
            Some((extents, position)) => {
                let known = &mut self.all[name as usize];
                (known.extents, known.position) = (extents, position);
            }
            None => drop(self.without_extents.insert(device)),
        }
    }

    pub fn get(&self, name: u32) -> &Name {
        &self.all[name as usize]
    }

    pub fn set_id(&mut self, name: u32, id: u32) {
        self.all[name as usize].id = Some(id);
    }

    pub fn known(&self, path: &[u8]) -> Option<u32> {
        self.by_path.get(path).copied()
    }

    /// Return the number of a name; a new one was before its first use as `first` says.
    pub fn name(&mut self, path: &[u8], first: impl FnOnce() -> First) -> u32 {
        match self.known(path) {
            Some(name) => name,
            None => self.add(path, first()),
        }
    }

    fn add(&mut self, path: &[u8], first: First) -> u32 {
        let path: Rc<[u8]> = path.into();
        let name = self.all.len() as u32;
        self.all.push(Name {
            path: path.clone(),
            kind: first.kind,
            size: first.size,
            stored: first.stored,
            extents: u32::from(first.stored > 0),
            position: 0,
            id: None,
            inode: None,
        });
        self.by_path.insert(path, name);
        name
    }

    pub fn of_inode(&self, inode: Inode) -> Option<u32> {
        self.by_inode.get(&inode).copied()
    }

    pub fn inode(&self, name: u32) -> Option<Inode> {
        self.all[name as usize].inode
    }

    /// Note which file a name means.
    pub fn set_inode(&mut self, name: u32, inode: Inode) {
        self.all[name as usize].inode = Some(inode);
        self.by_inode.insert(inode, name);
    }

    /// Note that a name means no file any more.
    pub fn removed(&mut self, name: u32) {
        let known = &mut self.all[name as usize];
        self.links.remove(&known.path);
        if let Some(inode) = known.inode.take() {
            if self.by_inode.get(&inode) == Some(&name) {
                self.by_inode.remove(&inode);
            }
        }
    }

    /// Note that a file has got another name. What is in a folder moves with it: returns these
    /// names, each with its new one.
    pub fn renamed(&mut self, from: u32, to: u32) -> Vec<(u32, u32)> {
        let mut moved = vec![];
        let kind = self.all[from as usize].kind;
        self.all[to as usize].kind = kind;
        self.move_one(from, to);
        if kind != FileKind::Directory {
            return moved;
        }
        let mut start = self.all[from as usize].path.to_vec();
        start.push(b'/');
        let inside: Vec<u32> = (0..self.all.len() as u32)
            .filter(|name| self.get(*name).path.starts_with(&start))
            .collect();
        for name in inside {
            let rest = self.get(name).path[start.len()..].to_vec();
            let path = joined(&self.get(to).path.clone(), &rest);
            let kind = self.get(name).kind;
            let new = self.name(&path, || First::missing(kind));
            self.move_one(name, new);
            moved.push((name, new));
        }
        moved
    }

    fn move_one(&mut self, from: u32, to: u32) {
        let (old, new) = (self.get(from).path.clone(), self.get(to).path.clone());
        match self.links.remove(&old) {
            Some(target) => drop(self.links.insert(new, target)),
            None => drop(self.links.remove(&new)),
        }
        if let Some(inode) = self.all[from as usize].inode.take() {
            self.set_inode(to, inode);
        }
    }

    /// Note a symbolic link.
    pub fn link(&mut self, path: &[u8], target: &[u8]) {
        self.links.insert(path.into(), target.to_vec());
    }

    /// Return where a path leads that is relative to an absolute folder. `follow`: also through its
    /// last part.
    pub fn resolve(&mut self, folder: &[u8], path: &[u8], follow: bool) -> Place {
        let mut whole = match path.first() {
            Some(b'/') => plain(path),
            _ => plain(&joined(folder, path)),
        };
        for _ in 0..MOST_LINKS {
            let inside = match self.relative(&whole) {
                Some(inside) => inside.to_vec(),
                None => match self.real(&whole) {
                    Some(real) if real != whole => {
                        whole = real;
                        continue;
                    }
                    _ => return Place::Outside(whole),
                },
            };
            match self.through_link(&inside, follow) {
                Some(next) => whole = next,
                None => return Place::Inside(inside),
            }
        }
        Place::Outside(whole)
    }

    /// Replace the first link in a path by its target.
    fn through_link(&self, inside: &[u8], follow: bool) -> Option<Vec<u8>> {
        if self.links.is_empty() || inside.is_empty() {
            return None;
        }
        let ends = (0..=inside.len())
            .filter(|end| *end == inside.len() && follow || inside.get(*end) == Some(&b'/'));
        for end in ends {
            if let Some(target) = self.links.get(&inside[..end]) {
                let folder = inside[..end].rsplitn(2, |byte| *byte == b'/').nth(1);
                let absolute = match target.first() {
                    Some(b'/') => target.clone(),
                    _ => joined(&self.absolute(folder.unwrap_or_default()), target),
                };
                return Some(plain(&joined(&absolute, &inside[end..])));
            }
        }
        None
    }

    /// Return the path with its folder's real place, in case links outside lead to the folder.
    fn real(&mut self, whole: &[u8]) -> Option<Vec<u8>> {
        let at = whole.iter().rposition(|byte| *byte == b'/')?;
        let (folder, last) = (&whole[..at], &whole[at + 1..]);
        if let Some(real) = self.folders.get(folder) {
            return Some([&real[..], last].join(&b'/'));
        }
        // Through another root, links lead elsewhere from here.
        let found = match self.root == Path::new("/") {
            true => fs::canonicalize(self.reach_absolute(folder)).ok(),
            false => None,
        };
        let real = found.map_or(folder.to_vec(), |real| {
            plain(&real.into_os_string().into_vec())
        });
        if self.folders.len() >= MOST_FOLDERS {
            self.folders.clear();
        }
        self.folders.insert(folder.to_vec(), real.clone());
        Some([&real[..], last].join(&b'/'))
    }

    /// Return an absolute path relative to the folder, if it is inside.
    pub fn relative<'a>(&self, whole: &'a [u8]) -> Option<&'a [u8]> {
        match whole.strip_prefix(&self.under[..])? {
            [] => Some(&[]),
            [b'/', rest @ ..] => Some(rest),
            _ => None,
        }
    }

    pub fn absolute(&self, path: &[u8]) -> Vec<u8> {
        match path.is_empty() {
            true => self.under.clone(),
            false => [&self.under[..], path].join(&b'/'),
        }
    }

    /// Look at a name now: after its first use, if that was not seen before.
    pub fn look(&self, path: &[u8]) -> Option<First> {
        let found = fs::symlink_metadata(self.reach(path)).ok()?;
        Some(First {
            kind: kind_of(&found),
            size: Some(if found.is_file() { found.len() } else { 0 }),
            stored: found.blocks() * 512,
        })
    }

    fn reach(&self, path: &[u8]) -> PathBuf {
        self.reach_absolute(&self.absolute(path))
    }

    fn reach_absolute(&self, path: &[u8]) -> PathBuf {
        let relative = path.strip_prefix(b"/").unwrap_or(path);
        self.root.join(std::ffi::OsStr::from_bytes(relative))
    }
}

/// Hashes the parts of paths, with a key that is drawn when this is made and never stored.
pub struct NameHash(RandomState);

impl NameHash {
    pub fn new() -> Self {
        NameHash(RandomState::new())
    }

    /// Replace each part by 16 digits. A short extension stays.
    pub fn path(&self, path: &[u8]) -> Vec<u8> {
        if path.is_empty() {
            return Vec::new();
        }
        let parts: Vec<Vec<u8>> = path
            .split(|byte| *byte == b'/')
            .map(|part| self.part(part))
            .collect();
        parts.join(&b'/')
    }

    fn part(&self, part: &[u8]) -> Vec<u8> {
        let mut hasher = self.0.build_hasher();
        hasher.write(part);
        let mut text = format!("{:016x}", hasher.finish()).into_bytes();
        let dot = part.iter().rposition(|byte| *byte == b'.');
        if let Some(extension) = dot.filter(|at| *at > 0).map(|at| &part[at..]) {
            if extension.len() <= 6 && extension[1..].iter().all(u8::is_ascii_alphabetic) {
                text.extend(extension);
            }
        }
        text
    }
}

/// The mounts of a process (proc_pid_mountinfo(5)).
struct Mounts(Vec<Mount>);

struct Mount {
    at: Vec<u8>,
    device: u32,
    of_the_kernel: bool,
}

impl Mounts {
    fn parse(text: &str) -> Self {
        let mount = |line: &str| {
            let mut words = line.split(' ');
            let (major, minor) = words.nth(2)?.split_once(':')?;
            let at = unescaped(words.nth(1)?.as_bytes());
            let kind = words.skip_while(|word| *word != "-").nth(1)?;
            Some(Mount {
                at: plain(&at),
                device: of_kernel(major.parse().ok()?, minor.parse().ok()?),
                of_the_kernel: OF_THE_KERNEL.contains(&kind),
            })
        };
        Mounts(text.lines().filter_map(mount).collect())
    }

    fn of(&self, folder: &[u8]) -> Option<&Mount> {
        let holds = |mount: &&Mount| match folder.strip_prefix(&mount.at[..]) {
            Some(rest) => rest.is_empty() || rest[0] == b'/',
            None => false,
        };
        // Of several at one place, the last is seen.
        (self.0.iter().filter(holds)).max_by_key(|mount| mount.at.len())
    }

    fn is_of_the_kernel(&self, folder: &[u8]) -> bool {
        self.of(folder).is_some_and(|mount| mount.of_the_kernel)
    }

    /// Return the kernel's number of the file system with this st_dev. For disks it is the same;
    /// btrfs shows others in stat.
    fn device(&self, folder: &[u8], shown: u64, known: &mut HashMap<u64, u32>) -> u32 {
        let (major, minor) = (libc::major(shown), libc::minor(shown));
        if major != 0 {
            return of_kernel(major, minor);
        }
        *known.entry(shown).or_insert_with(|| {
            let mount = self.of(folder).filter(|mount| mount.device >> 20 == 0);
            mount.map_or(of_kernel(major, minor), |mount| mount.device)
        })
    }
}

/// Return a device's number as the kernel has it (include/linux/kdev_t.h).
fn of_kernel(major: u32, minor: u32) -> u32 {
    major << 20 | minor
}

/// Replace \040 and the like by their bytes.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = (*first == b'\\').then(|| after.get(..3)).flatten();
        let number = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match number {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

pub fn joined(folder: &[u8], rest: &[u8]) -> Vec<u8> {
    match (folder, rest) {
        ([], rest) => rest.to_vec(),
        (folder, []) => folder.to_vec(),
        (folder, rest) => [folder, rest].join(&b'/'),
    }
}

/// Return an absolute path without empty parts, `.` and `..`; empty for the root.
fn plain(path: &[u8]) -> Vec<u8> {
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    (parts.iter())
        .flat_map(|part| [&b"/"[..], part].concat())
        .collect()
}

fn kind_of(found: &Metadata) -> FileKind {
    let kind = found.file_type();
    if kind.is_file() {
        FileKind::Regular
    } else if kind.is_dir() {
        FileKind::Directory
    } else if kind.is_symlink() {
        FileKind::Link
    } else {
        FileKind::Other
    }
}
