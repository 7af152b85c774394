//! Expected results of a `files` job, computed from the list of operations before anything is done.
//!
//! Each file is simulated through the operations. An order that cannot work (read before open) is a
//! bad request. Bytes, sizes and names are known in advance, and are checked against the counts of
//! the job and against the kernel.

use std::ops::Range;

use crate::content::Content;
use crate::error::{Error, Result};
use crate::fileset::FileSet;
use crate::protocol::{word, LinkKind, Operation, Order};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Descriptor {
    Closed,
    Reading,
    Writing,
}

/// One file of the job, under the name that the job uses.
#[derive(Clone, Debug)]
pub struct Fate {
    pub index: u32,
    /// The kind of the name; None without a view.
    pub kind: Option<LinkKind>,
    pub size: u64,
    pub name_exists: bool,
    descriptor: Descriptor,
    offset: u64,
}

#[derive(Debug, Default)]
pub struct Expected {
    pub fates: Vec<Fate>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub entries: u64,
    /// Sum of the sizes that `stat` returns.
    pub stat_bytes: u64,
    /// Sum of the sizes that `fstat` returns.
    pub fstat_bytes: u64,
    /// Number of times `lstat` and `readlink` are called on the names.
    pub lstats: u64,
    pub readlinks: u64,
    /// Sum of the sizes that `lstat` returns for names that are not symbolic links.
    pub lstat_bytes: u64,
    /// The folders that `getdents` lists.
    pub folders: Vec<String>,
}

pub struct Plan<'a> {
    pub set: &'a FileSet,
    pub view: Option<&'a str>,
    pub files: &'a [u32],
    pub operations: &'a [Operation],
    pub order: Order,
    pub buffer: u64,
    pub replicates: u32,
}

impl Plan<'_> {
    pub fn expected(&self) -> Result<Expected> {
        let mut expected = Expected {
            fates: self
                .files
                .iter()
                .map(|n| self.first(*n))
                .collect::<Result<_>>()?,
            ..Expected::default()
        };
        let mut names = self.set.names_by_folder(self.view)?;
        let mut listed = vec![false; names.len()];
        for index in self.files {
            listed[self.set.folder_number(*index) as usize] = true;
        }
        let lists = lists_in(self.operations);
        let mut fates = std::mem::take(&mut expected.fates);
        for _ in 0..self.replicates {
            for phase in phases(self.order, self.operations) {
                let operations = &self.operations[phase.clone()];
                let there: u64 = (names.iter().zip(&listed))
                    .filter(|(_, listed)| **listed)
                    .map(|(number, _)| number)
                    .sum();
                expected.entries += there * lists_in(operations);
                for fate in &mut fates {
                    let before = fate.name_exists;
                    for operation in operations {
                        self.step(*operation, fate, &mut expected)?;
                    }
                    // A file that was moved to a view is not in the set's own folder, wherever the
                    // job finds it.
                    if self.view.is_some() || !self.moved(fate.index) {
                        let folder = &mut names[self.set.folder_number(fate.index) as usize];
                        *folder = *folder + u64::from(fate.name_exists) - u64::from(before);
                    }
                }
            }
        }
        expected.fates = fates;
        if lists > 0 {
            expected.folders = (self.set.folders(self.view).into_iter().zip(&listed))
                .filter(|(_, listed)| **listed)
                .map(|(folder, _)| folder)
                .collect();
        }
        Ok(expected)
    }

    fn moved(&self, index: u32) -> bool {
        self.set.files[index as usize].moved_to.is_some()
    }

    fn first(&self, index: u32) -> Result<Fate> {
        let kind = match self.view {
            None => None,
            Some(name) => self.set.view(name)?.kinds.get(&index).copied(),
        };
        let file = &self.set.files[index as usize];
        Ok(Fate {
            index,
            kind,
            size: file.size,
            name_exists: file.exists,
            descriptor: Descriptor::Closed,
            offset: 0,
        })
    }

    fn step(&self, operation: Operation, fate: &mut Fate, sums: &mut Expected) -> Result<()> {
        use Descriptor::{Closed, Reading, Writing};
        let wanted = |fulfilled: bool, what: &str, found: String| {
            if fulfilled {
                return Ok(());
            }
            Err(Error::bad(format!(
                "operation {} on file {} of {}: expected {what}, found {found}",
                word(operation),
                fate.index,
                self.set.dir
            )))
        };
        let descriptor = fate.descriptor;
        let one = |wanted: Descriptor| descriptor == wanted;
        let open = |closed: bool| {
            let what = if closed {
                "a closed file"
            } else {
                "an open file"
            };
            wanted(one(Closed) == closed, what, format!("{descriptor:?}"))
        };
        let there = || wanted(fate.name_exists, "a file that exists", "none".to_string());
        match operation {
            Operation::Open | Operation::OpenWrite | Operation::OpenTruncate => {
                open(true)?;
                there()?;
                let reads = operation == Operation::Open;
                fate.descriptor = if reads { Reading } else { Writing };
                fate.offset = 0;
                if operation == Operation::OpenTruncate {
                    fate.size = 0;
                }
            }
            Operation::Create => {
                open(true)?;
                wanted(!fate.name_exists, "no file of that name", "one".to_string())?;
                let plain = matches!(fate.kind, None | Some(LinkKind::Regular));
                wanted(plain, "no link at that path", format!("{:?}", fate.kind))?;
                fate.descriptor = Writing;
                fate.name_exists = true;
                fate.offset = 0;
                fate.size = 0;
            }
            Operation::Read | Operation::ReadToEnd | Operation::Sendfile => {
                wanted(
                    one(Reading),
                    "a file open for reading",
                    format!("{descriptor:?}"),
                )?;
                let left = fate.size.saturating_sub(fate.offset);
                let n = match operation {
                    Operation::Read => left.min(self.buffer),
                    _ => left,
                };
                fate.offset += n;
                sums.bytes_read += n;
            }
            Operation::WriteByte => {
                wanted(
                    one(Writing),
                    "a file open for writing",
                    format!("{descriptor:?}"),
                )?;
                fate.offset += 1;
                fate.size = fate.size.max(fate.offset);
                sums.bytes_written += 1;
            }
            Operation::WriteAll => {
                wanted(
                    one(Writing),
                    "a file open for writing",
                    format!("{descriptor:?}"),
                )?;
                let at_start = fate.offset == 0;
                let found = format!("{} bytes", fate.offset);
                wanted(at_start, "no earlier write to it", found)?;
                let whole = self.set.files[fate.index as usize].whole;
                fate.offset = whole;
                fate.size = fate.size.max(fate.offset);
                sums.bytes_written += whole;
            }
            Operation::Fstat => {
                open(false)?;
                sums.fstat_bytes += fate.size;
            }
            Operation::Fsync => open(false)?,
            Operation::Close => {
                open(false)?;
                fate.descriptor = Closed;
            }
            Operation::Stat => {
                there()?;
                sums.stat_bytes += fate.size;
            }
            Operation::Lstat => {
                there()?;
                sums.lstats += 1;
                if !is_symlink(fate.kind) {
                    sums.lstat_bytes += fate.size;
                }
            }
            Operation::Readlink => {
                there()?;
                let found = fate
                    .kind
                    .map_or("no view".to_string(), |kind| format!("{kind:?}"));
                wanted(is_symlink(fate.kind), "a symbolic link", found)?;
                sums.readlinks += 1;
            }
            Operation::Unlink => {
                there()?;
                fate.name_exists = false;
            }
            Operation::Getdents => {}
        }
        Ok(())
    }
}

fn lists_in(operations: &[Operation]) -> u64 {
    let lists = operations.iter().filter(|o| **o == Operation::Getdents);
    lists.count() as u64
}

pub fn is_symlink(kind: Option<LinkKind>) -> bool {
    use LinkKind::{SymlinkAbsolute, SymlinkChain, SymlinkRelative};
    matches!(kind, Some(SymlinkAbsolute | SymlinkRelative | SymlinkChain))
}

/// Return the byte that each `write-byte` of the list writes to each file. It is the byte that the
/// file holds at that offset, so that the write does not change the content. The offset is the
/// number of bytes written since the file was opened.
pub fn bytes_to_write(operations: &[Operation], files: &[u32], content: &Content) -> Vec<Vec<u8>> {
    let mut written = 0;
    operations
        .iter()
        .map(|operation| match operation {
            Operation::WriteByte => {
                written += 1;
                let at = |index: &u32| content.byte(*index, written - 1);
                files.iter().map(at).collect()
            }
            Operation::Open
            | Operation::OpenWrite
            | Operation::OpenTruncate
            | Operation::Create => {
                written = 0;
                Vec::new()
            }
            _ => Vec::new(),
        })
        .collect()
}

// Phases: the parts of the list of operations.

/// Split the list of operations into phases. A phase is done to all files before the next one
/// begins. It is the whole list, one operation, or (by phase) everything from opening a file to
/// closing it, and each operation outside of that. `getdents` runs at the start of its phase.
pub fn phases(order: Order, operations: &[Operation]) -> Vec<Range<usize>> {
    let mut phases = Vec::new();
    let (mut start, mut is_open) = (0, false);
    for (n, operation) in operations.iter().enumerate() {
        use Operation::{Close, Create, Open, OpenTruncate, OpenWrite};
        match operation {
            Open | OpenWrite | OpenTruncate | Create => is_open = true,
            Close => is_open = false,
            _ => {}
        }
        let ends = match order {
            Order::File => n + 1 == operations.len(),
            Order::Operation => true,
            Order::Phase => !is_open || n + 1 == operations.len(),
        };
        if ends {
            phases.push(start..n + 1);
            start = n + 1;
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fileset::tests::set_of;
    use Operation::*;

    fn expected(operations: &[Operation], replicates: u32) -> Result<Expected> {
        let set = set_of(5, 2);
        Plan {
            set: &set,
            view: None,
            files: &[0, 2],
            operations,
            order: Order::File,
            buffer: 4,
            replicates,
        }
        .expected()
    }

    #[test]
    fn a_read_past_the_end_brings_nothing() {
        // Files of 10 bytes: reads of 4 return 4, 4, 2, 0.
        let found = expected(&[Open, Read, Read, Read, Read, Close], 3).unwrap();
        assert_eq!(found.bytes_read, 2 * 3 * 10);
    }

    #[test]
    fn truncating_and_writing_decide_the_size() {
        let found = expected(&[OpenTruncate, WriteByte, WriteByte, Close], 2).unwrap();
        assert_eq!(found.bytes_written, 8);
        assert!(found.fates.iter().all(|fate| fate.size == 2));
    }

    #[test]
    fn an_order_that_cannot_work_is_refused() {
        for operations in [
            &[Read][..],
            &[Open, Open],
            &[Open, WriteByte],
            &[Create],
            &[Unlink, Stat],
            &[Close],
            &[Readlink],
        ] {
            assert!(expected(operations, 1).is_err(), "{operations:?}");
        }
        assert!(expected(&[Open, Read], 1).is_ok());
        assert!(
            expected(&[Open, Read], 2).is_err(),
            "still open at the second time"
        );
    }

    #[test]
    fn a_whole_file_is_written_once_and_from_its_start() {
        let found = expected(&[OpenTruncate, WriteAll, Fstat, Close], 2).unwrap();
        assert_eq!((found.bytes_written, found.fstat_bytes), (40, 40));
        assert!(expected(&[OpenWrite, WriteAll, WriteAll, Close], 1).is_err());
        assert!(expected(&[Fstat], 1).is_err());
    }

    #[test]
    fn entries_are_those_of_the_folders_that_hold_the_files() {
        // Files 0, 2 and 4 are in folder 0; in the second replicate two of them are gone.
        let operations = [Getdents, Stat, Unlink];
        assert_eq!(expected(&operations, 1).unwrap().entries, 3);
        let again = [Getdents, Unlink, Create, Close];
        assert_eq!(expected(&again, 2).unwrap().entries, 6);
    }
}

#[cfg(test)]
mod phases_tests {
    use super::*;
    use Operation::{Close, Create, Getdents, Open, Read, Stat, Unlink, WriteAll};

    #[test]
    fn a_phase_is_from_an_opening_to_its_close() {
        let operations = [
            Create, WriteAll, Close, Getdents, Stat, Open, Read, Close, Unlink,
        ];
        assert_eq!(
            phases(Order::Phase, &operations),
            [0..3, 3..4, 4..5, 5..8, 8..9]
        );
        assert_eq!(
            phases(Order::File, &operations),
            vec![Range { start: 0, end: 9 }]
        );
        assert_eq!(phases(Order::Operation, &operations).len(), 9);
    }
}
