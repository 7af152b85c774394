//! The loop devices of the machine: finding a free one, adding and removing devices and their nodes
//! in /dev.

use rustix::fs::{mknodat, openat, FileType, Mode, OFlags, CWD};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use libc::c_ulong;
use serde_json::{json, Value};

use crate::error::{last_errno, Doing, Error, Result};
use crate::protocol::LoopRemove;
use crate::sys::loop_device::status;
use crate::sys::{exists, mount_nowhere};

pub const LOOP_MAJOR: u32 = 7;
const LOOP_CTL_ADD: c_ulong = 0x4c80;
const LOOP_CTL_REMOVE: c_ulong = 0x4c81;

/// Return the number of a free device: the lowest that is not attached or, if all are, the lowest
/// that does not exist. Unlike LOOP_CTL_GET_FREE this changes nothing, so the number can be
/// journaled before the device is added.
pub fn free() -> Result<u32> {
    let mut numbers: Vec<u32> = loop_devices()
        .iter()
        .filter_map(|name| number_of(name).ok())
        .collect();
    numbers.sort_unstable();
    for number in &numbers {
        if fs::symlink_metadata(format!("/sys/block/loop{number}/loop")).is_err() {
            return Ok(*number);
        }
    }
    Ok((0..)
        .find(|number| !numbers.contains(number))
        .unwrap_or_default())
}

pub fn describe_free() -> Result<Value> {
    let number = free()?;
    let name = format!("loop{number}");
    Ok(json!({
        "present": loop_devices().contains(&name),
        "node": exists(&format!("/dev/{name}"))?,
        "name": name,
    }))
}

/// An attached loop device and what it is attached to.
pub struct Attached {
    pub name: String,
    pub rdev: libc::dev_t,
    pub over: Result<Over>,
}

/// The backing file by the kernel's numbers: the device of its file system, its inode and, if it is
/// a device node, its device number.
pub struct Over {
    pub device: u64,
    pub inode: u64,
    pub rdevice: u64,
}

/// Return all attached loop devices. Uses its own device nodes in a detached tmpfs: /dev may have
/// different nodes, or none.
pub fn attached() -> Vec<Attached> {
    let nodes = mount_nowhere("tmpfs");
    let mut found = Vec::new();
    for name in loop_devices() {
        let number = fs::read_to_string(format!("/sys/block/{name}/dev")).unwrap_or_default();
        let numbers = number.trim().split_once(':');
        let rdev = match numbers.map(|(major, minor)| (major.parse(), minor.parse())) {
            Some((Ok(major), Ok(minor))) => libc::makedev(major, minor),
            _ => continue, // removed just now
        };
        if fs::symlink_metadata(format!("/sys/block/{name}/loop")).is_err() {
            continue;
        }
        let over = match &nodes {
            Ok(nodes) => over(nodes, &name, rdev),
            Err(error) => Err(Error::unsupported(error.to_string())),
        };
        match over {
            // detached just now
            Err(Error::Os {
                errno: libc::ENXIO | libc::ENODEV,
                ..
            }) => {}
            over => found.push(Attached { name, rdev, over }),
        }
    }
    found
}

fn over(nodes: &OwnedFd, name: &str, rdev: libc::dev_t) -> Result<Over> {
    let doing = || format!("look up what {name} is attached to");
    let mode = Mode::from_bits_retain(0o600);
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let device = mknodat(nodes, name, FileType::BlockDevice, mode, rdev)
        .and_then(|()| openat(nodes, name, flags, Mode::empty()))
        .doing(doing)?;
    let found = status(&device, name)?;
    Ok(Over {
        device: found.device,
        inode: found.inode,
        rdevice: found.rdevice,
    })
}

/// What did not exist before and is removed with the device: the kernel adds a device if all are
/// taken.
#[derive(Clone, Copy)]
pub struct Made {
    number: u32,
    device: bool,
    node: bool,
}

impl Made {
    /// Add the device and its node if they do not exist.
    pub fn make(number: u32) -> Result<Self> {
        Ok(Made {
            number,
            device: add(number)?,
            node: make_node(number)?,
        })
    }

    /// Remove them. Ignores errors: if somebody else uses the device by now, it is theirs.
    pub fn take_away(self) {
        if self.node {
            let _ = fs::remove_file(format!("/dev/loop{}", self.number));
        }
        if self.device {
            let _ = control().map(|control| remove_once(&control, self.number));
        }
    }
}

/// Remove a device that had to be added, and its node if that was created too. It must not be
/// attached.
pub fn remove(request: &LoopRemove) -> Result<Value> {
    let number = number_of(&request.device)?;
    let control = control()?;
    for attempt in 0.. {
        match remove_once(&control, number) {
            Ok(()) | Err(libc::ENODEV) => break,
            // A program that probes new disks may have it open for a moment.
            Err(libc::EBUSY) if attempt < 200 => sleep(Duration::from_millis(10)),
            Err(errno) => return Err(Error::errno(format!("remove loop{number}"), errno)),
        }
    }
    if request.node {
        match fs::remove_file(format!("/dev/loop{number}")) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::errno(
                    format!("remove /dev/loop{number}"),
                    error.raw_os_error().unwrap_or(libc::EIO),
                ))
            }
            _ => {}
        }
    }
    Ok(json!({}))
}

fn remove_once(control: &File, number: u32) -> std::result::Result<(), i32> {
    // SAFETY: the argument of this request is a number.
    match unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_REMOVE, c_ulong::from(number)) } {
        -1 => Err(last_errno()),
        _ => Ok(()),
    }
}

fn control() -> Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/loop-control")
        .doing(|| "open /dev/loop-control")
}

/// Add the device. Returns false if it existed already.
fn add(number: u32) -> Result<bool> {
    if exists(&format!("/sys/block/loop{number}"))? {
        return Ok(false);
    }
    let control = control()?;
    // SAFETY: the argument of this request is a number.
    match unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_ADD, c_ulong::from(number)) } {
        -1 if last_errno() == libc::EEXIST => Ok(false),
        -1 => Err(Error::last_os(format!("add loop{number}"))),
        _ => Ok(true),
    }
}

pub fn number_of(name: &str) -> Result<u32> {
    name.strip_prefix("loop")
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| {
            Error::bad(format!(
                "device {name:?}: expected a loop device such as loop3"
            ))
        })
}

/// Create the device node. In a container /dev may not be devtmpfs, and a new device has no node
/// there.
fn make_node(number: u32) -> Result<bool> {
    let path = format!("/dev/loop{number}");
    if exists(&path)? {
        return Ok(false);
    }
    let device = libc::makedev(LOOP_MAJOR, number);
    let mode = Mode::from_bits_retain(0o660);
    match mknodat(CWD, &path, FileType::BlockDevice, mode, device) {
        Err(Errno::EXIST) => Ok(false),
        made => made
            .map(|()| true)
            .doing(|| format!("make device node {path}")),
    }
}

fn loop_devices() -> Vec<String> {
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    names
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("loop"))
        .collect()
}
