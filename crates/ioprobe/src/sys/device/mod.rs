//! A user's disk that is claimed for a lab: opened by name once, and identified by its descriptor
//! from then on.
//!
//! A name in /dev can be swapped between two accesses, a descriptor cannot. So the name is resolved
//! once, without opening the device (O_PATH), and everything else refers to that descriptor: its
//! type, its device number, its size, its users. The disk is never opened for writing before the
//! mark is written.
//!
//! Two descriptors are held. The anchor keeps the kernel from reusing the device number for another
//! disk, and its flock keeps udev from probing what the lab creates. The claim (O_EXCL) keeps
//! others from mounting, formatting or assembling the disk. mount(2) needs that claim for itself,
//! so it is released just before and retaken after an unmount; then everything must be the same as
//! the first time.

pub mod content;
pub mod users;

use rustix::fs::{mknodat, FileType, Mode, CWD};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use libc::{c_int, c_ulong};
use serde_json::{json, Value};

use crate::error::{last_errno, Doing, Error, Result};
use crate::protocol::DeviceClaim;
use crate::sys::{c_text, check, open, stat_of, try_open};

const BLKROGET: c_ulong = 0x125e;
const BLKFLSBUF: c_ulong = 0x1261;
const BLKSSZGET: c_ulong = 0x1268;
const BLKGETSIZE64: c_ulong = 0x8008_1272;
const BLKGETDISKSEQ: c_ulong = 0x8008_1280;
/// Retries: programs that probe new disks hold them for a moment.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

pub struct Device {
    /// As in /sys/block.
    pub name: String,
    rdev: libc::dev_t,
    state: State,
    anchor: OwnedFd,
    claim: Option<OwnedFd>,
    node: Option<String>,
}

/// What must still hold whenever the disk is reopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    size: u64,
    sector: u32,
    /// Incremented by the kernel for every disk, even if it reuses a device number (Linux 5.15).
    diskseq: Option<u64>,
}

impl Device {
    pub fn claim(request: &DeviceClaim, proc: &OwnedFd) -> Result<Self> {
        let doing = format!("claim {}", request.path);
        let named = open(&request.path, libc::O_PATH, 0)?;
        let rdev = block_number(&named, &doing)?;
        let name = kernel_name(rdev)?;
        let system = sysfs(rdev);
        if fs::symlink_metadata(format!("{system}/partition")).is_ok() {
            return Err(Error::bad(format!(
                "{doing}: {name} is a partition; use a whole disk"
            )));
        }
        let anchor = through(&named, libc::O_RDONLY | libc::O_NONBLOCK, &doing)?;
        drop(named);
        lock(&anchor, &doing)?;
        let mut device = Device {
            name,
            rdev,
            state: state(&anchor, &doing)?,
            anchor,
            claim: None,
            node: None,
        };
        device.reclaim(proc)?;
        if let Some(path) = &request.node {
            device.make_node(path)?;
        }
        Ok(device)
    }

    pub fn describe(&self, proc: &OwnedFd) -> Result<Value> {
        let mut read_only: c_int = 0;
        check(
            // SAFETY: the kernel fills one number.
            unsafe { libc::ioctl(self.anchor.as_raw_fd(), BLKROGET, &mut read_only) },
            || format!("check whether {} is read-only", self.name),
        )?;
        Ok(json!({
            "device": self.name,
            "rdevice": [libc::major(self.rdev), libc::minor(self.rdev)],
            "descriptor": format!("/proc/{}/fd/{}", std::process::id(), self.anchor.as_raw_fd()),
            "size": self.state.size,
            "sector": self.state.sector,
            "diskseq": self.state.diskseq,
            "read_only": read_only != 0,
            "partitions": users::partitions(self.rdev).into_iter().map(|(name, _)| name).collect::<Vec<_>>(),
            "users": users::of(self.rdev, proc),
        }))
    }

    pub fn users(&self, proc: &OwnedFd) -> Value {
        json!({ "users": users::of(self.rdev, proc) })
    }

    /// Release the claim, for mount(2) to take.
    pub fn release(&mut self) {
        self.claim = None;
    }

    /// Take the claim again. Fails if the disk is not the same as before.
    pub fn reclaim(&mut self, proc: &OwnedFd) -> Result<()> {
        if self.claim.is_some() {
            return Ok(());
        }
        let doing = format!("claim {}", self.name);
        let flags = libc::O_RDONLY | libc::O_EXCL | libc::O_DIRECT | libc::O_NONBLOCK;
        for attempt in 1.. {
            match through(&self.anchor, flags, &doing) {
                Ok(claim) => {
                    self.claim = Some(self.same(claim, &doing)?);
                    break;
                }
                Err(Error::Os {
                    errno: libc::EBUSY, ..
                }) => {
                    let users = users::of(self.rdev, proc);
                    if attempt < ATTEMPTS && users.is_empty() {
                        sleep(PAUSE);
                        continue;
                    }
                    let by = match users.is_empty() {
                        true => "an unknown user".to_string(),
                        false => users.join(", "),
                    };
                    return Err(Error::errno(format!("{doing}: in use: {by}"), libc::EBUSY));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Return a descriptor for direct reads: the claim itself.
    fn reading(&self) -> Result<BorrowedFd<'_>> {
        self.claim
            .as_ref()
            .map(AsFd::as_fd)
            .ok_or_else(|| Error::bad(format!("{}: the claim on it has been released", self.name)))
    }

    /// Open a short-lived descriptor for writing. Only under the claim, and only to the same disk.
    pub fn writing(&self, flags: c_int) -> Result<OwnedFd> {
        self.reading()?;
        let doing = format!("open {} for writing", self.name);
        self.same(through(&self.anchor, libc::O_RDWR | flags, &doing)?, &doing)
    }

    /// Open a read-only descriptor to the same disk; works while it is mounted, too.
    pub fn reading_again(&self, flags: c_int) -> Result<OwnedFd> {
        let doing = format!("open {} for reading", self.name);
        self.same(
            through(&self.anchor, libc::O_RDONLY | flags, &doing)?,
            &doing,
        )
    }

    pub fn sector(&self) -> u32 {
        self.state.sector
    }

    /// Drop the cached pages of the disk itself.
    pub fn evict(&self) -> Result<()> {
        check(
            // SAFETY: this request takes no argument.
            unsafe { libc::ioctl(self.anchor.as_raw_fd(), BLKFLSBUF, 0) },
            || format!("drop the cached pages of {}", self.name),
        )?;
        Ok(())
    }

    fn same(&self, opened: OwnedFd, doing: &str) -> Result<OwnedFd> {
        let found = state(&opened, doing)?;
        if block_number(&opened, doing)? == self.rdev && found == self.state {
            return Ok(opened);
        }
        Err(Error::verify(format!(
            "{doing}: the disk has changed since it was checked: expected {:?}, found {found:?}",
            self.state
        )))
    }

    /// Create a device node of the lab's own for mount(2), in a folder that nobody else can write
    /// to.
    fn make_node(&mut self, path: &str) -> Result<()> {
        let mode = Mode::from_bits_retain(0o600);
        mknodat(CWD, path, FileType::BlockDevice, mode, self.rdev)
            .doing(|| format!("make device node {path}"))?;
        self.node = Some(path.to_string());
        Ok(())
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let Some(node) = &self.node {
            let _ = fs::remove_file(node);
        }
    }
}

/// Reopen the object behind a descriptor, whatever its name refers to by now.
fn through(fd: &OwnedFd, flags: c_int, doing: &str) -> Result<OwnedFd> {
    let path = c_text(&format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    try_open(&path, flags, 0).map_err(|errno| Error::errno(doing, errno))
}

fn block_number(fd: &OwnedFd, doing: &str) -> Result<libc::dev_t> {
    let status = stat_of(fd, doing)?;
    let kind = match status.st_mode & libc::S_IFMT {
        libc::S_IFBLK => return Ok(status.st_rdev),
        libc::S_IFREG => "a file",
        libc::S_IFDIR => "a folder",
        libc::S_IFCHR => "a character device",
        libc::S_IFIFO => "a pipe",
        _ => "something else",
    };
    Err(Error::bad(format!(
        "{doing}: expected a block device, found {kind}"
    )))
}

fn sysfs(rdev: libc::dev_t) -> String {
    let (major, minor) = (libc::major(rdev), libc::minor(rdev));
    format!("/sys/dev/block/{major}:{minor}")
}

fn kernel_name(rdev: libc::dev_t) -> Result<String> {
    let link = fs::read_link(sysfs(rdev)).ok();
    link.as_deref()
        .and_then(std::path::Path::file_name)
        .map(|name| name.to_string_lossy().into_owned())
        .ok_or_else(|| {
            Error::errno(
                format!("find {}: the kernel has no such device", sysfs(rdev)),
                libc::ENXIO,
            )
        })
}

fn state(fd: &OwnedFd, doing: &str) -> Result<State> {
    let (mut size, mut sector, mut diskseq): (u64, c_int, u64) = (0, 0, 0);
    let fd = fd.as_raw_fd();
    // SAFETY: the kernel fills one number each.
    unsafe {
        check(libc::ioctl(fd, BLKGETSIZE64, &mut size), || {
            format!("{doing}: get its size")
        })?;
        check(libc::ioctl(fd, BLKSSZGET, &mut sector), || {
            format!("{doing}: get its block size")
        })?;
        let known = libc::ioctl(fd, BLKGETDISKSEQ, &mut diskseq) == 0;
        Ok(State {
            size,
            sector: sector as u32,
            diskseq: known.then_some(diskseq),
        })
    }
}

/// Take the lock on the block device that systemd describes (BLOCK_DEVICE_LOCKING): udev ignores a
/// locked disk, so no desktop mounts what the lab creates.
fn lock(anchor: &OwnedFd, doing: &str) -> Result<()> {
    for attempt in 1.. {
        // SAFETY: no pointers are involved.
        if unsafe { libc::flock(anchor.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
            break;
        }
        match last_errno() {
            libc::EWOULDBLOCK if attempt < ATTEMPTS => sleep(PAUSE),
            libc::EWOULDBLOCK => {
                return Err(Error::errno(
                    format!("{doing}: in use: another program holds its lock (flock)"),
                    libc::EBUSY,
                ))
            }
            errno => return Err(Error::errno(format!("{doing}: lock it"), errno)),
        }
    }
    Ok(())
}

/// Open a file for reading below an open folder.
fn open_below(folder: &OwnedFd, path: &str) -> std::io::Result<File> {
    File::open(below(folder, path))
}

fn below(folder: &OwnedFd, path: &str) -> String {
    format!("/proc/self/fd/{}/{path}", folder.as_raw_fd())
}
