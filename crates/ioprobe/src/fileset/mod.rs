//! File sets: N files with known content at every size, in folders, with other names for them in
//! views.
//!
//! The registry holds the expected state of every file (size, existence, name), so that every job
//! can be verified against it.

pub mod cache;
pub mod copy;
pub mod create;
pub mod extents;
pub mod layout;
pub mod links;
pub mod times;
pub mod verify;

use std::collections::BTreeMap;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::protocol::{LinkKind, Selection};
use crate::sys::stat;

pub struct FileSet {
    pub dir: String,
    pub directories: u32,
    pub content: Content,
    pub mode: u32,
    pub files: Vec<FileState>,
    pub views: BTreeMap<String, View>,
    /// Why the set must not be used any more (see `inspect`).
    pub spoiled: Option<String>,
}

#[derive(Clone, Debug)]
pub struct FileState {
    pub size: u64,
    /// The size that it was last created or rewritten at, whatever a job has done to it since.
    pub whole: u64,
    pub exists: bool,
    /// The view into which the file itself was moved.
    pub moved_to: Option<String>,
}

/// Other names for files of a set, in folder `<dir>.<view>`.
#[derive(Default)]
pub struct View {
    pub kinds: BTreeMap<u32, LinkKind>,
}

impl FileSet {
    /// Return the folder that holds the names: the set's own, or that of a view.
    pub fn root(&self, view: Option<&str>) -> String {
        match view {
            None => self.dir.clone(),
            Some(view) => format!("{}.{view}", self.dir),
        }
    }

    /// Return the folders at or below `root` that hold names.
    pub fn folders(&self, view: Option<&str>) -> Vec<String> {
        let root = self.root(view);
        (0..self.directories)
            .map(|n| format!("{root}{}", self.folder_part(n)))
            .collect()
    }

    fn folder_part(&self, number: u32) -> String {
        if self.directories == 1 {
            String::new()
        } else {
            format!("/d{number:03}")
        }
    }

    pub fn folder_number(&self, index: u32) -> u32 {
        index % self.directories
    }

    /// Return the path of a name below the root of the set or of a view: `f000007` or
    /// `d003/f000007`.
    pub fn relative(&self, index: u32) -> String {
        let part = self.folder_part(self.folder_number(index));
        format!("{part}/f{index:06}")[1..].to_string()
    }

    pub fn name_in(&self, view: Option<&str>, index: u32) -> String {
        format!("{}/{}", self.root(view), self.relative(index))
    }

    /// Return the path of the file itself: in the set's folder, or in the view into which it was
    /// moved.
    pub fn path(&self, index: u32) -> String {
        self.name_in(self.files[index as usize].moved_to.as_deref(), index)
    }

    /// Return the path by which a job opens a file: through a view, or its own.
    pub fn path_through(&self, view: Option<&str>, index: u32) -> Result<String> {
        match view {
            None => Ok(self.path(index)),
            Some(name) if self.view(name)?.kinds.contains_key(&index) => {
                Ok(self.name_in(view, index))
            }
            Some(name) => Err(Error::bad(format!(
                "view {name} of {}: file {index} is not among its {} files",
                self.dir,
                self.view(name)?.kinds.len()
            ))),
        }
    }

    pub fn view(&self, name: &str) -> Result<&View> {
        self.views.get(name).ok_or_else(|| {
            Error::bad(format!(
                "view {name} of {}: no such view; views made by `link`: {:?}",
                self.dir,
                self.views.keys().collect::<Vec<_>>()
            ))
        })
    }

    /// Expand a selection into indices. Indices that are out of range or repeated are errors.
    pub fn select(&self, selection: &Selection) -> Result<Vec<u32>> {
        let count = self.files.len() as u32;
        let chosen = match selection {
            None => return Ok((0..count).collect()),
            Some(chosen) => chosen,
        };
        let mut seen = vec![false; count as usize];
        for index in chosen {
            match seen.get_mut(*index as usize) {
                None => {
                    return Err(Error::bad(format!(
                        "files of {}: expected indices below {count}, found {index}",
                        self.dir
                    )))
                }
                Some(true) => {
                    return Err(Error::bad(format!(
                        "files of {}: index {index} occurs twice",
                        self.dir
                    )))
                }
                Some(seen) => *seen = true,
            }
        }
        Ok(chosen.clone())
    }

    /// Like `select`, but with a view null selects the files of the view.
    pub fn select_in(&self, view: Option<&str>, selection: &Selection) -> Result<Vec<u32>> {
        match (view, selection) {
            (Some(name), None) => Ok(self.view(name)?.kinds.keys().copied().collect()),
            _ => self.select(selection),
        }
    }

    /// Return the number of names that each folder should hold, by folder number.
    pub fn names_by_folder(&self, view: Option<&str>) -> Result<Vec<u64>> {
        let mut names = vec![0; self.directories as usize];
        match view {
            Some(name) => {
                for index in self.view(name)?.kinds.keys() {
                    names[self.folder_number(*index) as usize] += 1;
                }
            }
            None => {
                for (index, file) in self.files.iter().enumerate() {
                    if file.exists && file.moved_to.is_none() {
                        names[self.folder_number(index as u32) as usize] += 1;
                    }
                }
            }
        }
        Ok(names)
    }
}

/// Fewer files than this are not worth a thread.
const LEAST_OF_THREAD: usize = 128;
/// More than the processors of a small machine: a thread may wait for the disk.
const MOST_THREADS: usize = 8;

/// Do something untimed to many files, each thread to its share of them, and return what each share
/// gave, in the order of the files.
pub fn shared_out<T: Send>(
    files: &[u32],
    act: impl Fn(&[u32]) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = (files.len() / LEAST_OF_THREAD).clamp(1, MOST_THREADS);
    if threads == 1 {
        return Ok(vec![act(files)?]);
    }
    let (first, others) = files.split_at(files.len().div_ceil(threads));
    std::thread::scope(|scope| {
        let act = &act;
        let begun: Vec<_> = others
            .chunks(first.len())
            .map(|part| scope.spawn(move || act(part)))
            .collect();
        let mut found = vec![act(first)];
        found.extend(begun.into_iter().map(|one| {
            one.join()
                .unwrap_or_else(|_| Err(Error::bad("a thread that prepares files has died")))
        }));
        found.into_iter().collect()
    })
}

/// The sets that this probe knows, by name.
#[derive(Default)]
pub struct Registry {
    sets: BTreeMap<String, FileSet>,
}

impl Registry {
    pub fn get(&mut self, name: &str) -> Result<&mut FileSet> {
        let known = self.sets.keys().cloned().collect::<Vec<_>>();
        match self.sets.get_mut(name) {
            None => Err(Error::bad(format!(
                "set {name}: no such set; sets made by `fileset`: {known:?}"
            ))),
            Some(FileSet {
                spoiled: Some(why), ..
            }) => Err(Error::verify(why.clone())),
            Some(set) => Ok(set),
        }
    }

    pub fn put(&mut self, name: String, set: FileSet) {
        self.sets.insert(name, set);
    }
}

// Protection against what another user's command may have put in place of a set's files.
//
// File sets belong to the user that runs the commands, and root then sets modes, truncates and
// reads by the same names. A name that has become a link would lead root to any file of the
// machine. So after every command of another user, when none of its processes runs any more, all
// names of all sets are checked. A set with a name that is neither what it was nor gone is not
// touched again. (Checking before a job instead would cache the very inodes that must be cold.)

/// Check every known set.
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

/// Check the type of a name. A missing name is fine: it leads nowhere.
fn expect(path: &str, kind: libc::mode_t, wanted: &str) -> Result<()> {
    match stat(path, false) {
        Ok(status) if status.st_mode & libc::S_IFMT == kind => Ok(()),
        Ok(status) => Err(Error::verify(format!(
            "check {path} after a command: expected {wanted}, found a file of type {:#o}; the set is left as it is",
            status.st_mode & libc::S_IFMT
        ))),
        Err(Error::Os {
            errno: libc::ENOENT,
            ..
        }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::content::Kind;

    pub fn set_of(count: u32, directories: u32) -> FileSet {
        FileSet {
            dir: "/lab/set".to_string(),
            directories,
            content: Content {
                kind: Kind::Zeros,
                seed: 1,
            },
            mode: 0o644,
            files: vec![
                FileState {
                    size: 10,
                    whole: 10,
                    exists: true,
                    moved_to: None
                };
                count as usize
            ],
            views: BTreeMap::new(),
            spoiled: None,
        }
    }

    #[test]
    fn names_follow_the_number_of_folders() {
        assert_eq!(set_of(1, 1).path(0), "/lab/set/f000000");
        assert_eq!(set_of(9, 4).path(7), "/lab/set/d003/f000007");
        assert_eq!(
            set_of(9, 4).name_in(Some("A"), 4),
            "/lab/set.A/d000/f000004"
        );
        assert_eq!(set_of(9, 4).names_by_folder(None).unwrap(), [3, 2, 2, 2]);
    }

    #[test]
    fn shares_hold_every_file_once_in_order_and_an_error_in_any_of_them_is_returned() {
        for count in [0, 1, 127, 128, 257, 1025, 9999] {
            let files: Vec<u32> = (0..count).rev().collect();
            let shares = shared_out(&files, |part| Ok(part.to_vec())).unwrap();
            assert_eq!(shares.concat(), files);
            let last = shared_out(&files, |part| match part.last() {
                Some(0) => Err(Error::bad("the last file")),
                _ => Ok(()),
            });
            assert_eq!(last.is_err(), count > 0);
        }
    }

    #[test]
    fn a_selection_holds_each_index_once_and_none_beyond() {
        let set = set_of(3, 1);
        assert_eq!(set.select(&None).unwrap(), [0, 1, 2]);
        assert_eq!(set.select(&Some(vec![2, 0])).unwrap(), [2, 0]);
        assert!(set.select(&Some(vec![3])).is_err());
        assert!(set.select(&Some(vec![1, 1])).is_err());
    }
}
