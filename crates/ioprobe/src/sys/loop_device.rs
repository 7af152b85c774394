//! Loop devices over images: attached with autoclear and held open here, so that they live exactly
//! as long as needed.
//!
//! Direct I/O keeps the image's pages out of the cache; with buffered loop devices a "cold" read is
//! served from memory.

use crate::sys::drop_pages;
use rustix::fs::{fallocate, FallocateFlags};
use std::fs::{self, File, OpenOptions};
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use libc::{c_int, c_ulong};
use serde_json::{json, Value};
use simdisk::Disk;

use crate::error::{last_errno, Doing, Error, Result};
use crate::protocol::LoopStatus;
use crate::sys::loop_table::{free, number_of, Made, LOOP_MAJOR};
use crate::sys::{c_text, check, stat_of, try_open};

const LOOP_GET_STATUS64: c_ulong = 0x4c05;
const LOOP_CONFIGURE: c_ulong = 0x4c0a;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const BLKFLSBUF: c_ulong = 0x1261;
const BLKBSZSET: c_ulong = 0x4008_1271;
const ATTEMPTS: u32 = 64;

/// `struct loop_info64` of linux/loop.h.
#[repr(C)]
pub struct LoopInfo {
    pub device: u64,
    pub inode: u64,
    pub rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config` of linux/loop.h.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// What is behind a loop device: an image, or the first bytes of a claimed disk.
pub struct Backing {
    pub file: OwnedFd,
    pub window: Option<Window>,
    /// The simulated disk that the file belongs to; dropping this ends it.
    pub disk: Option<Disk>,
}

/// The part of a disk that a loop device shows: no program can write beyond it.
#[derive(Clone, Copy)]
pub struct Window {
    pub size: u64,
    pub sector: u32,
}

pub struct LoopDevice {
    pub name: String,
    pub direct_io: bool,
    pub inode: u64,
    /// Only held open: on the last close the kernel clears the device.
    device: File,
    image: Backing,
    made: Made,
}

/// Attach an image to a free loop device. Retries if another process takes the device first.
pub fn attach(
    image: Backing,
    direct_io: bool,
    device: Option<&str>,
) -> std::result::Result<LoopDevice, (Backing, Error)> {
    match try_attach(&image, direct_io, device) {
        Ok((name, device, made, found)) => Ok(LoopDevice {
            name,
            direct_io: found.flags & LO_FLAGS_DIRECT_IO != 0,
            inode: found.inode,
            device,
            image,
            made,
        }),
        Err(error) => Err((image, error)),
    }
}

fn try_attach(
    image: &Backing,
    direct_io: bool,
    device: Option<&str>,
) -> Result<(String, File, Made, LoopInfo)> {
    if let Some(name) = device {
        return attach_to(image, direct_io, number_of(name)?);
    }
    for _ in 0..ATTEMPTS {
        match attach_to(image, direct_io, free()?) {
            Err(Error::Os {
                errno: libc::EBUSY, ..
            }) => {}
            other => return other,
        }
    }
    Err(Error::errno(
        format!(
            "attach an image: {ATTEMPTS} times another program took the free loop device first"
        ),
        libc::EBUSY,
    ))
}

/// Attach to this device, adding it if it does not exist. An `os` error EBUSY if it is taken.
fn attach_to(
    image: &Backing,
    direct_io: bool,
    number: u32,
) -> Result<(String, File, Made, LoopInfo)> {
    let (name, path) = (format!("loop{number}"), format!("/dev/loop{number}"));
    let made = Made::make(number)?;
    let outcome = configure(image, direct_io, &name, &path);
    if outcome.is_err() {
        made.take_away();
    }
    outcome.map(|(device, found)| (name, device, made, found))
}

fn configure(image: &Backing, direct_io: bool, name: &str, path: &str) -> Result<(File, LoopInfo)> {
    let config = configuration(image, direct_io);
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .doing(|| format!("open {path}"))?;
    // SAFETY: the kernel reads one structure of this size.
    if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &config) } == 0 {
        let found = status(&device, path)?;
        let wanted = stat_of(&image.file, "the image")?.st_ino;
        if found.inode != wanted {
            return Err(Error::verify(format!(
                "attach to {name}: expected inode {wanted} behind it, found {}",
                found.inode
            )));
        }
        return Ok((device, found));
    }
    match last_errno() {
        libc::EINVAL | libc::ENOTTY => Err(Error::unsupported(format!(
            "attach an image to {path}: needs LOOP_CONFIGURE (Linux 5.8 or later)"
        ))),
        errno => Err(Error::errno(format!("attach an image to {path}"), errno)),
    }
}

/// Return what a device is attached to. A device that is not attached is not opened.
pub fn describe(request: &LoopStatus) -> Result<Value> {
    let number = number_of(&request.device)?;
    let nothing = json!({"attached": false, "inode": null});
    if fs::symlink_metadata(format!("/sys/block/loop{number}/loop")).is_err() {
        return Ok(nothing);
    }
    let path = format!("/dev/loop{number}");
    let device = File::open(&path).doing(|| format!("open {path}"))?;
    match status(&device, &path) {
        Ok(found) => Ok(json!({"attached": true, "inode": found.inode})),
        Err(Error::Os {
            errno: libc::ENXIO, ..
        }) => Ok(nothing),
        Err(error) => Err(error),
    }
}

fn configuration(image: &Backing, direct_io: bool) -> LoopConfig {
    // SAFETY: all fields are numbers, for which zero is a valid value.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = image.file.as_raw_fd() as u32;
    config.block_size = match image.window {
        Some(window) => window.sector,
        None if direct_io => direct_io_unit(&image.file),
        None => 512,
    };
    config.info.size_limit = image.window.map_or(0, |window| window.size);
    config.info.flags = LO_FLAGS_AUTOCLEAR | if direct_io { LO_FLAGS_DIRECT_IO } else { 0 };
    config.info.file_name[..7].copy_from_slice(b"iotrial");
    config
}

/// Return the block size that direct I/O on this image needs: 512 unless the file system reports
/// more (statx, Linux 6.1).
fn direct_io_unit(image: &OwnedFd) -> u32 {
    const STATX_DIOALIGN: u32 = 0x2000;
    const OFFSET_ALIGN: usize = 0x9c; // of stx_dio_offset_align in struct statx
    let mut answer = [0_u8; 256];
    // SAFETY: struct statx has 256 bytes; the empty path stands for the descriptor.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_statx,
            image.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN,
            answer.as_mut_ptr(),
        )
    } == -1;
    let number = |at: usize| {
        u32::from_ne_bytes([answer[at], answer[at + 1], answer[at + 2], answer[at + 3]])
    };
    let known = !failed && number(0) & STATX_DIOALIGN != 0;
    match number(OFFSET_ALIGN) {
        unit @ 512..=4096 if known && unit.is_power_of_two() => unit,
        _ => 512,
    }
}

/// Return the status of a loop device; an `os` error ENXIO if it is not attached.
pub fn status(device: &impl AsRawFd, path: &str) -> Result<LoopInfo> {
    // SAFETY: all fields are numbers; the kernel fills one structure of this size.
    unsafe {
        let mut info: LoopInfo = std::mem::zeroed();
        check(
            libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &mut info),
            || format!("read the status of {path}"),
        )?;
        Ok(info)
    }
}

impl LoopDevice {
    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    pub fn disk(&self) -> Option<&Disk> {
        self.image.disk.as_ref()
    }

    /// Reopen the device read-only.
    pub fn reading(&self, flags: c_int) -> Result<OwnedFd> {
        let itself = c_text(&format!("/proc/self/fd/{}", self.device.as_raw_fd()))?;
        try_open(&itself, libc::O_RDONLY | flags, 0)
            .map_err(|errno| Error::errno(format!("open {} for reading", self.path()), errno))
    }

    /// Drop the cached pages of the device itself (inode tables, directories: an unmount leaves
    /// them while the device is held open), and those of its image.
    pub fn evict(&self) -> Result<()> {
        check(
            // SAFETY: this request takes no argument.
            unsafe { libc::ioctl(self.device.as_raw_fd(), BLKFLSBUF, 0) },
            || format!("drop the cached pages of {}", self.path()),
        )?;
        let image = &self.image.file;
        rustix::fs::fdatasync(image)
            .doing(|| format!("write back the image of {}", self.path()))?;
        drop_pages(image, &format!("the image of {}", self.path()))
    }

    /// Reset device and image to a fixed state.
    ///
    /// The device's soft block size: mkfs.xfs sets it to 512 bytes, and because the device is held
    /// open here, the kernel does not reset it on the last close. mkfs.ext4 of 4 GiB would then
    /// make 92 write requests instead of 57, mkfs.btrfs 81 instead of 50. The image: zeros,
    /// allocated but unwritten (FALLOC_FL_ZERO_RANGE), and synced. Otherwise, the extents written
    /// by the previous run would affect how much writes cost the file system below.
    pub fn renew(&self) -> Result<()> {
        let doing = || format!("renew the image of {}", self.path());
        if self.image.window.is_some() {
            return Err(Error::unsupported(format!(
                "{}: it is a part of a disk, not a file",
                doing()
            )));
        }
        self.evict()?;
        self.reset_block_size()?;
        let image = &self.image.file;
        let size = stat_of(image, "the image")?.st_size as u64;
        let mode = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        fallocate(image, mode, 0, size).doing(doing)?;
        rustix::fs::fsync(image).doing(doing)?;
        self.evict()
    }

    /// Reset the block size. Retries on EBUSY: a file system releases the device a moment after the
    /// unmount.
    fn reset_block_size(&self) -> Result<()> {
        let size: c_int = 4096;
        for attempt in 1.. {
            // SAFETY: the kernel reads one number.
            if unsafe { libc::ioctl(self.device.as_raw_fd(), BLKBSZSET, &size) } == 0 {
                break;
            }
            let errno = last_errno();
            if errno != libc::EBUSY || attempt == 200 {
                let doing = format!("set the block size of {} to {size}", self.path());
                return Err(Error::errno(doing, errno));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Close device and image, and wait until the kernel has cleared the device: a program that
    /// probes new disks may hold it for a moment. Fails while it is mounted here.
    pub fn detach(self) -> std::result::Result<(), (Option<LoopDevice>, Error)> {
        let path = self.path();
        match self.mounted_on() {
            Ok(None) => {}
            Ok(Some(target)) => {
                let doing = format!("detach {path}: it is mounted on {target}");
                return Err((Some(self), Error::errno(doing, libc::EBUSY)));
            }
            Err(error) => return Err((Some(self), error)),
        }
        let (name, inode, made) = (self.name.clone(), self.inode, self.made);
        // The kernel may still write to the image, so it is closed last.
        let (device, _image) = (self.device, self.image);
        drop(device);
        for _ in 0..200 {
            if !attached(&path, &name, inode) {
                made.take_away();
                return Ok(());
            }
            sleep(Duration::from_millis(10));
        }
        Err((
            None,
            Error::errno(
                format!("detach {path}: still open in another program"),
                libc::EBUSY,
            ),
        ))
    }

    fn mounted_on(&self) -> Result<Option<String>> {
        let number = self.name.trim_start_matches("loop");
        let wanted = format!("{LOOP_MAJOR}:{number}");
        let table =
            fs::read_to_string("/proc/self/mountinfo").doing(|| "read /proc/self/mountinfo")?;
        Ok(table.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(2);
            (fields.next() == Some(&wanted)).then(|| fields.nth(1).unwrap_or("?").to_string())
        }))
    }
}

/// Return whether the device is still attached to the image with this inode.
fn attached(path: &str, name: &str, inode: u64) -> bool {
    let backing = format!("/sys/block/{name}/loop/backing_file");
    fs::metadata(backing).is_ok()
        && File::open(path)
            .doing(String::new)
            .and_then(|device| status(&device, path))
            .is_ok_and(|found| found.inode == inode)
}
