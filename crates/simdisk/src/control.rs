//! The probe's side of a simulated disk: the mount with its file, and the socket that controls it.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::mount::{fsconfig_create, fsconfig_set_string, fsmount, fsopen};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::net::sockopt::{set_socket_timeout, Timeout};
use rustix::net::{
    recv, send, socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, Result};

const LONGEST: usize = 1 << 16;
/// How long a new disk may take to allocate its memory.
const STARTS_WITHIN: Duration = Duration::from_secs(120);

/// Commands to a disk, one byte each. The answer to each is its statistics.
pub const ACCOUNT: u8 = b'a';
/// Answer requests at once.
pub const AT_ONCE: u8 = b'o';
/// Answer requests when the model says so.
pub const AS_MODELLED: u8 = b'm';
/// Put the text that follows into the log.
pub const MARK: u8 = b'k';
/// Show the image below again as it is.
pub const FORGET: u8 = b'f';

/// The first message of a disk.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Greeting {
    Started { pid: u32, inode: u64 },
    Refused { message: String, errno: Option<i32> },
}

/// The answer to a command: the disk's statistics.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer<T = Value> {
    Account(T),
    Refused(String),
}

/// Create a detached mount of a FUSE file system that is a single file. `fuse` is an open
/// /dev/fuse.
pub fn mount(fuse: &impl AsFd) -> Result<OwnedFd> {
    let failed = || Error::os("mount fuse");
    let fd = rustix::fd::AsRawFd::as_raw_fd(&fuse.as_fd()).to_string();
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).map_err(failed())?;
    let mode = format!("{:o}", libc::S_IFREG | 0o600);
    let options = [
        ("fd", &*fd),
        ("rootmode", &mode),
        ("user_id", "0"),
        ("group_id", "0"),
    ];
    for (name, value) in options {
        fsconfig_set_string(&context, name, value).map_err(failed())?;
    }
    fsconfig_create(&context).map_err(failed())?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    fsmount(&context, flags, MountAttrFlags::empty()).map_err(failed())
}

/// A simulated disk. Dropping this ends it.
pub struct Disk {
    control: OwnedFd,
    pub pid: u32,
}

impl Disk {
    /// Create a socket pair for a disk: our end, and the server's.
    pub fn sockets() -> Result<(OwnedFd, OwnedFd)> {
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(kind.0, kind.1, SocketFlags::CLOEXEC, None)
            .map_err(Error::os("make a pair of sockets"))?;
        // Time out instead of waiting forever for a disk that was stopped by a signal.
        set_socket_timeout(&ours, Timeout::Recv, Some(STARTS_WITHIN))
            .map_err(Error::os("set the time-out of a simulated disk"))?;
        Ok((ours, theirs))
    }

    /// Wait until the server at the other end has started. Returns the disk, and the inode of the
    /// file in its mount.
    pub fn started(control: OwnedFd) -> Result<(Self, u64)> {
        match receive(&control)? {
            Greeting::Started { pid, inode } => Ok((Disk { control, pid }, inode)),
            Greeting::Refused { message, errno } => Err(match errno {
                Some(errno) => Error::Os {
                    doing: message,
                    errno,
                },
                None => Error::Description(message),
            }),
        }
    }

    /// Return the disk's statistics so far.
    pub fn account(&self) -> Result<Value> {
        self.send(ACCOUNT)
    }

    /// Set whether requests take as long as the model says. If not, they are not added to the
    /// statistics.
    pub fn set_pace(&self, modelled: bool) -> Result<()> {
        self.send(if modelled { AS_MODELLED } else { AT_ONCE })
            .map(drop)
    }

    /// Put a mark into the log, after all that has completed.
    pub fn mark(&self, text: &str) -> Result<()> {
        let question = [&[MARK], text.as_bytes()].concat();
        self.ask(&question).map(drop)
    }

    /// Drop all that was written over the image below. The disk must be idle.
    pub fn forget(&self) -> Result<()> {
        self.send(FORGET).map(drop)
    }

    fn send(&self, what: u8) -> Result<Value> {
        self.ask(&[what])
    }

    fn ask(&self, question: &[u8]) -> Result<Value> {
        send(&self.control, question, SendFlags::NOSIGNAL).map_err(Error::os(ASK))?;
        match receive(&self.control)? {
            Answer::Account(account) => Ok(account),
            Answer::Refused(message) => Err(Error::Description(message)),
        }
    }
}

const ASK: &str = "query a simulated disk";

fn receive<T: for<'a> Deserialize<'a>>(control: &OwnedFd) -> Result<T> {
    let mut text = vec![0_u8; LONGEST];
    match recv(control, &mut text[..], RecvFlags::empty()) {
        Err(errno) => Err(Error::os(ASK)(errno)),
        Ok((0, _)) => Err(Error::os(format!("{ASK}: its process has exited"))(
            Errno::IO,
        )),
        Ok((n, _)) => serde_json::from_slice(&text[..n])
            .map_err(|cause| Error::Protocol(format!("{ASK}: {cause}"))),
    }
}
