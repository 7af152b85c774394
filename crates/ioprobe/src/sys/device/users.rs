//! Finds the users of a disk: mounts of any process, swap, devices stacked on it, open descriptors,
//! mappings.
//!
//! The kernel's exclusive claim already fails if a disk or one of its partitions is mounted, used
//! as swap or part of an array; this names the user. It also finds users that claim nothing: a loop
//! device over the disk, or a virtual machine that writes to it. Everything is compared by the
//! kernel's numbers (device, inode): a path may be gone, or mean something else elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::io::OwnedFd;

use super::{below, open_below, sysfs};
use crate::sys::loop_table::{self, Attached};

/// Return the partitions that the kernel knows, with their device numbers.
pub fn partitions(rdev: libc::dev_t) -> Vec<(String, libc::dev_t)> {
    let system = sysfs(rdev);
    let mut found: Vec<_> = names(&system)
        .into_iter()
        .filter(|name| fs::symlink_metadata(format!("{system}/{name}/partition")).is_ok())
        .filter_map(|name| {
            let number = number_in(&format!("{system}/{name}/dev"))?;
            Some((name, number))
        })
        .collect();
    found.sort();
    found
}

/// Describe the users in words, each once.
pub fn of(rdev: libc::dev_t, proc: &OwnedFd) -> Vec<String> {
    let mut found = BTreeSet::new();
    let stack = Stack::around(rdev, &mut found);
    for volume in names("/sys/fs/btrfs") {
        for name in stack.devices.values() {
            if fs::symlink_metadata(format!("/sys/fs/btrfs/{volume}/devices/{name}")).is_ok() {
                found.insert(format!("{name} is part of the mounted btrfs {volume}"));
            }
        }
    }
    if let Ok(table) = fs::read_to_string("/proc/swaps") {
        for path in table
            .lines()
            .skip(1)
            .filter_map(|l| l.split_whitespace().next())
        {
            if stack.has_path(&unescaped(path)) {
                found.insert(format!("{path} is swap"));
            }
        }
    }
    processes(proc, &stack, &mut found);
    found.into_iter().collect()
}

/// The disk and all devices that share its data: its partitions, what is stacked on them and, if
/// the disk is itself a loop device, what is below that. A user of any of them uses the disk.
struct Stack {
    disk: libc::dev_t,
    devices: BTreeMap<libc::dev_t, String>,
    /// Device and inode of the files behind loop devices below the disk.
    files: BTreeSet<(u64, u64)>,
    /// The disk and the devices below it. They use what is below them, but are not users of the
    /// disk.
    chain: BTreeSet<libc::dev_t>,
}

impl Stack {
    /// Collect the stack around a disk, and record what is stacked on the disk as its users.
    fn around(rdev: libc::dev_t, found: &mut BTreeSet<String>) -> Self {
        let loops = loop_table::attached();
        let mut stack = Stack {
            disk: rdev,
            devices: BTreeMap::new(),
            files: BTreeSet::new(),
            chain: BTreeSet::new(),
        };
        stack.add(rdev);
        stack.descend(rdev, &loops);
        let mut known = 0;
        while known < stack.devices.len() {
            known = stack.devices.len();
            stack.ascend(&loops, found);
        }
        stack
    }

    fn add(&mut self, rdev: libc::dev_t) {
        self.devices.insert(rdev, name_of(rdev));
        for (name, number) in partitions(rdev) {
            self.devices.insert(number, name);
        }
    }

    /// Walk down. A loop device puts no claim on the device below it, so that is added to the
    /// stack. Array members and mapped devices are claimed; they are only searched for loop devices
    /// below them.
    fn descend(&mut self, rdev: libc::dev_t, loops: &[Attached]) {
        if !self.chain.insert(rdev) {
            return;
        }
        for member in names(&format!("{}/slaves", sysfs(rdev))) {
            if let Some(number) = number_in(&format!("/sys/class/block/{member}/dev")) {
                self.descend(number, loops);
            }
        }
        let over = loops.iter().find(|one| one.rdev == rdev);
        match over.and_then(|one| one.over.as_ref().ok()) {
            Some(over) if over.rdevice != 0 => {
                self.add(over.rdevice);
                self.descend(over.rdevice, loops);
            }
            Some(over) => {
                self.files.insert((over.device, over.inode));
            }
            None => {}
        }
    }

    /// Go up one level: add the holders and loop devices of all known devices.
    fn ascend(&mut self, loops: &[Attached], found: &mut BTreeSet<String>) {
        for (number, name) in self.devices.clone() {
            for holder in names(&format!("{}/holders", sysfs(number))) {
                let above = number_in(&format!("/sys/class/block/{holder}/dev"));
                if above.is_some_and(|above| self.chain.contains(&above)) {
                    continue;
                }
                found.insert(format!("{name} is part of {holder}"));
                above.into_iter().for_each(|above| self.add(above));
            }
        }
        for one in loops {
            if self.chain.contains(&one.rdev) {
                continue;
            }
            let name = &one.name;
            let how = match &one.over {
                Err(error) => format!("{name} is attached to an unknown file: {error}"),
                Ok(over) => {
                    let to = if let Some(to) = self.devices.get(&over.rdevice) {
                        self.word(over.rdevice, to)
                    } else if let Some(on) = self.devices.get(&over.device) {
                        format!("a file on {}", self.word(over.device, on))
                    } else if self.files.contains(&(over.device, over.inode)) {
                        "the same file".to_string()
                    } else {
                        continue;
                    };
                    format!("{name} is attached to {to}")
                }
            };
            found.insert(how);
            self.add(one.rdev);
        }
    }

    fn word(&self, rdev: libc::dev_t, name: &str) -> String {
        (if rdev == self.disk { "it" } else { name }).to_string()
    }

    fn has_number(&self, rdev: libc::dev_t) -> bool {
        self.devices.contains_key(&rdev)
    }

    /// Return whether this is one of the devices, or a file below them.
    fn has(&self, status: &Metadata) -> bool {
        if status.file_type().is_block_device() {
            self.has_number(status.rdev())
        } else {
            self.files.contains(&(status.dev(), status.ino()))
        }
    }

    fn has_path(&self, path: &str) -> bool {
        fs::metadata(path).is_ok_and(|status| self.has(&status))
    }
}

/// Find mounts in the mount namespace of every process, and what processes have open or mapped. Our
/// own open files do not count.
fn processes(proc: &OwnedFd, stack: &Stack, found: &mut BTreeSet<String>) {
    let myself = fs::read_link(below(proc, "self")).unwrap_or_default();
    let (mut views, mut mapped) = (BTreeSet::new(), BTreeMap::new());
    for pid in names(&below(proc, "")) {
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let who = || {
            let name = text(proc, &format!("{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim_end())
        };
        let mut maps = None;
        // If the main thread has ended while others live, the kernel shows nothing for it. Also,
        // each thread may have its own descriptor table and namespaces.
        for thread in names(&below(proc, &format!("{pid}/task"))) {
            // What is outside a process's root is not in its mount table.
            let of_thread = |link: &str| fs::read_link(below(proc, &format!("{thread}/{link}")));
            let view = of_thread("ns/mnt").and_then(|space| Ok((space, of_thread("root")?)));
            if view.map_or(true, |view| views.insert(view)) {
                let table = text(proc, &format!("{thread}/mountinfo")).unwrap_or_default();
                for line in table.lines() {
                    if let Some(target) = mounted(line, proc, &thread, stack) {
                        found.insert(format!("mounted on {target} (seen by {})", who()));
                    }
                }
            }
            if std::path::Path::new(&pid) == myself {
                continue;
            }
            descriptors(proc, &thread, stack, &who, found);
            if maps.is_none() {
                maps = text(proc, &format!("{thread}/maps")).filter(|maps| !maps.is_empty());
                let table = maps.as_deref().unwrap_or_default();
                if maps_it(proc, &thread, table, stack, &mut mapped) {
                    found.insert(format!("mapped by {}", who()));
                }
            }
        }
    }
}

/// Find open descriptors, and count those in flight in sockets: only the kernel knows what these
/// refer to.
fn descriptors(
    proc: &OwnedFd,
    thread: &str,
    stack: &Stack,
    who: &dyn Fn() -> String,
    found: &mut BTreeSet<String>,
) {
    for fd in names(&below(proc, &format!("{thread}/fd"))) {
        let status = match fs::metadata(below(proc, &format!("{thread}/fd/{fd}"))) {
            Ok(status) => status,
            Err(_) => continue,
        };
        if stack.has(&status) {
            found.insert(format!("open in {}", who()));
        }
        if fs::read_link(below(proc, &format!("{thread}/fd/{fd}")))
            .is_ok_and(|link| link.as_os_str() == "anon_inode:[io_uring]")
        {
            let facts = text(proc, &format!("{thread}/fdinfo/{fd}")).unwrap_or_default();
            for path in registered(&facts) {
                match holds(proc, thread, path, stack) {
                    Some(true) => found.insert(format!("open in an io_uring of {}", who())),
                    None => found.insert(format!(
                        "perhaps open in an io_uring of {}, as {path}, which is not visible here",
                        who()
                    )),
                    Some(false) => continue,
                };
            }
        }
        if status.file_type().is_socket() {
            let facts = text(proc, &format!("{thread}/fdinfo/{fd}")).unwrap_or_default();
            let waiting = in_flight(&facts);
            if waiting > 0 {
                found.insert(format!(
                    "perhaps by {waiting} descriptors in flight in a socket of {}, which the kernel does not identify",
                    who()
                ));
            }
        }
    }
}

/// Parse `scm_fds` in the fdinfo of a Unix socket (Linux 5.9).
fn in_flight(facts: &str) -> u64 {
    facts
        .lines()
        .find_map(|line| line.strip_prefix("scm_fds:")?.trim().parse().ok())
        .unwrap_or(0)
}

/// Parse the names of the files registered with an io_uring from its fdinfo. Their descriptors may
/// be closed.
fn registered(facts: &str) -> impl Iterator<Item = &str> {
    facts
        .lines()
        .skip_while(|line| !line.starts_with("UserFiles:"))
        .skip(1)
        .map_while(|line| line.strip_prefix(' '))
        .filter_map(|line| Some(line.split_once(": ")?.1.trim()))
}

/// Return whether the kernel's name of a registered file refers to the disk; None if no path leads
/// there. Older kernels give only the last component.
fn holds(proc: &OwnedFd, thread: &str, name: &str, stack: &Stack) -> Option<bool> {
    if !name.starts_with('/') {
        return Some(stack.devices.values().any(|device| device == name));
    }
    let path = below(proc, &format!("{thread}/root{}", unescaped(name)));
    fs::metadata(path).ok().map(|status| stack.has(&status))
}

/// Return whether a mapping is of the disk, even if no descriptor refers to it any more. `maps`
/// shows the number of the device node, not of the device; the latter is behind the link in
/// `map_files`. `known` caches the result per node.
fn maps_it(
    proc: &OwnedFd,
    thread: &str,
    table: &str,
    stack: &Stack,
    known: &mut BTreeMap<String, bool>,
) -> bool {
    let mut any = false;
    for line in table.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().take(5).collect();
        let (range, node) = match fields[..] {
            [range, _, _, device, inode] if inode != "0" => (range, format!("{device} {inode}")),
            _ => continue,
        };
        any |= *known.entry(node).or_insert_with(|| {
            let file = format!("{thread}/map_files/{}", map_name(range));
            stack.has_path(&below(proc, &file))
        });
    }
    any
}

/// Convert an address range: `maps` pads addresses with zeros, `map_files` does not.
fn map_name(range: &str) -> String {
    let bare = |address: &str| match address.trim_start_matches('0') {
        "" => "0".to_string(),
        digits => digits.to_string(),
    };
    let (start, end) = range.split_once('-').unwrap_or((range, ""));
    format!("{}-{}", bare(start), bare(end))
}

/// Return the mount point if a line of mountinfo mounts the disk. A btrfs has a device number of
/// its own there, so its source is checked too.
fn mounted(line: &str, proc: &OwnedFd, pid: &str, stack: &Stack) -> Option<String> {
    let fields: Vec<&str> = line.split(' ').collect();
    let source = fields
        .iter()
        .position(|f| *f == "-")
        .and_then(|dash| fields.get(dash + 2));
    let by_number = fields
        .get(2)
        .and_then(|text| parse_number(text))
        .is_some_and(|number| stack.has_number(number));
    let by_source = || match source {
        Some(path) if path.starts_with('/') => {
            stack.has_path(&below(proc, &format!("{pid}/root{}", unescaped(path))))
        }
        _ => false,
    };
    if by_number || by_source() {
        return fields.get(4).map(ToString::to_string);
    }
    None
}

/// Return the kernel's name of the device, or its number if it has no name.
fn name_of(rdev: libc::dev_t) -> String {
    super::kernel_name(rdev)
        .unwrap_or_else(|_| format!("{}:{}", libc::major(rdev), libc::minor(rdev)))
}

/// Parse the device number in a `dev` file of sysfs.
fn number_in(path: &str) -> Option<libc::dev_t> {
    parse_number(fs::read_to_string(path).ok()?.trim())
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

/// Undo the escapes in kernel paths, such as \040 for a space (proc_pid_mountinfo(5)).
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
    fn an_address_in_map_files_has_no_leading_zeros() {
        assert_eq!(map_name("00400000-0040b000"), "400000-40b000");
        assert_eq!(map_name("00000000-00001000"), "0-1000");
    }

    #[test]
    fn descriptors_in_flight_are_counted_by_the_kernel() {
        let facts = "pos:\t0\nflags:\t02\nmnt_id:\t8\nino:\t7\nscm_fds: 3\n";
        assert_eq!([in_flight(facts), in_flight("pos:\t0\n")], [3, 0]);
    }

    #[test]
    fn what_is_registered_with_an_io_uring_is_listed_by_the_kernel() {
        let facts = "SqThread:\t-1\nUserFiles:\t3\n    0: /dev/sda\n    1: <none>\n    2: /a b\nUserBufs:\t1\n    0: 7f0/1\n";
        assert_eq!(
            registered(facts).collect::<Vec<_>>(),
            ["/dev/sda", "<none>", "/a b"]
        );
        assert_eq!(registered("pos:\t0\n").count(), 0);
    }

    #[test]
    fn escapes_of_the_kernel_are_undone() {
        assert_eq!(unescaped("/mnt/a\\040b\\134c"), "/mnt/a b\\c");
    }
}
