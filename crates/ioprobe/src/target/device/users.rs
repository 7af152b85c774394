//! Who uses a disk: mounts of any process, swap, what is built upon it, open descriptors.
//!
//! The kernel's exclusive claim already fails where a disk or a partition of it is mounted, swapped to or part of an array;
//! this says by whom. And it finds what claims nothing: a loop device over the disk, a virtual machine that writes to it.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::io::OwnedFd;

use super::{below, open_below, sysfs};

/// Partitions that the kernel knows, with their numbers.
pub fn partitions(rdev: libc::dev_t) -> Vec<(String, libc::dev_t)> {
    let system = sysfs(rdev);
    let mut found: Vec<_> = names(&system)
        .into_iter()
        .filter(|name| fs::symlink_metadata(format!("{system}/{name}/partition")).is_ok())
        .filter_map(|name| {
            let number = fs::read_to_string(format!("{system}/{name}/dev")).ok()?;
            Some((name, parse_number(number.trim())?))
        })
        .collect();
    found.sort();
    found
}

/// In words, each once.
pub fn of(rdev: libc::dev_t, proc: &OwnedFd) -> Vec<String> {
    let mut disks = partitions(rdev);
    let system = fs::read_link(sysfs(rdev)).unwrap_or_default();
    let name = system.file_name().unwrap_or_default();
    disks.push((name.to_string_lossy().into_owned(), rdev));
    let wanted = |number: libc::dev_t| disks.iter().any(|(_, disk)| *disk == number);

    let mut found = BTreeSet::new();
    for (name, number) in &disks {
        for holder in names(&format!("{}/holders", sysfs(*number))) {
            found.insert(format!("{name} is part of {holder}"));
        }
    }
    for volume in names("/sys/fs/btrfs") {
        for (name, _) in &disks {
            if fs::symlink_metadata(format!("/sys/fs/btrfs/{volume}/devices/{name}")).is_ok() {
                found.insert(format!("{name} is part of the mounted btrfs {volume}"));
            }
        }
    }
    for name in names("/sys/block") {
        let file = format!("/sys/block/{name}/loop/backing_file");
        if let Ok(path) = fs::read_to_string(file) {
            if number_at(path.trim_end_matches('\n')).map_or(false, wanted) {
                found.insert(format!("{name} is attached to it"));
            }
        }
    }
    if let Ok(table) = fs::read_to_string("/proc/swaps") {
        for path in table
            .lines()
            .skip(1)
            .filter_map(|l| l.split_whitespace().next())
        {
            if number_at(&unescaped(path)).map_or(false, wanted) {
                found.insert(format!("{path} is swap"));
            }
        }
    }
    processes(proc, &wanted, &mut found);
    found.into_iter().collect()
}

/// Mounts in the namespace of any process, and descriptors that are open on the disk. Our own do not count.
fn processes(proc: &OwnedFd, wanted: &dyn Fn(libc::dev_t) -> bool, found: &mut BTreeSet<String>) {
    let myself = fs::read_link(below(proc, "self")).unwrap_or_default();
    let mut namespaces = BTreeSet::new();
    for pid in names(&below(proc, "")) {
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let who = || {
            let name = text(proc, &format!("{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim_end())
        };
        let namespace = fs::read_link(below(proc, &format!("{pid}/ns/mnt"))).ok();
        if namespace.map_or(true, |link| namespaces.insert(link)) {
            let table = text(proc, &format!("{pid}/mountinfo")).unwrap_or_default();
            for line in table.lines() {
                if let Some(target) = mounted(line, proc, &pid, wanted) {
                    found.insert(format!("mounted on {target} (seen by {})", who()));
                }
            }
        }
        if std::path::Path::new(&pid) == myself {
            continue;
        }
        let folder = format!("{pid}/fd");
        if names(&below(proc, &folder))
            .iter()
            .any(|fd| number_at(&below(proc, &format!("{folder}/{fd}"))).map_or(false, wanted))
        {
            found.insert(format!("open in {}", who()));
        }
    }
}

/// Where a line of mountinfo mounts the disk. A btrfs has a number of its own there, so its source is looked at too.
fn mounted(
    line: &str,
    proc: &OwnedFd,
    pid: &str,
    wanted: &dyn Fn(libc::dev_t) -> bool,
) -> Option<String> {
    let fields: Vec<&str> = line.split(' ').collect();
    let source = fields
        .iter()
        .position(|f| *f == "-")
        .and_then(|dash| fields.get(dash + 2));
    let by_number = fields
        .get(2)
        .and_then(|text| parse_number(text))
        .map_or(false, wanted);
    let by_source = || match source {
        Some(path) if path.starts_with('/') => {
            number_at(&below(proc, &format!("{pid}/root{}", unescaped(path)))).map_or(false, wanted)
        }
        _ => false,
    };
    if by_number || by_source() {
        return fields.get(4).map(ToString::to_string);
    }
    None
}

/// The number of the block device that a path leads to.
fn number_at(path: &str) -> Option<libc::dev_t> {
    let status = fs::metadata(path).ok()?;
    status.file_type().is_block_device().then(|| status.rdev())
}

fn parse_number(text: &str) -> Option<libc::dev_t> {
    let (major, minor) = text.split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

fn text(proc: &OwnedFd, path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    open_below(proc, path).ok()?.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The kernel writes a space in a path as \040 (proc_pid_mountinfo(5)).
fn unescaped(path: &str) -> String {
    path.replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_number_is_two_numbers() {
        assert_eq!(parse_number("8:17"), Some(libc::makedev(8, 17)));
        assert_eq!(
            [parse_number("8"), parse_number("a:b"), parse_number("")],
            [None; 3]
        );
    }

    #[test]
    fn escapes_of_the_kernel_are_undone() {
        assert_eq!(unescaped("/mnt/a\\040b\\134c"), "/mnt/a b\\c");
    }
}
