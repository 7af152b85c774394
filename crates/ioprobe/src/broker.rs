//! Lets the sandboxed probe ask its parent to start a simulated disk outside the sandbox.
//!
//! Inside the sandbox, a server would be taken for a leftover of a command. Worse, it would hold
//! the probe's mounts: the last process to leave a mount namespace unmounts what is in it, and
//! would wait for its own answers. The kernel ends the servers with the outer probe, which ends
//! them before it releases the mounts over them.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::process::exit;

use libc::pid_t;
use rustix::event::{poll, PollFd, PollFlags};
use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use rustix::process::{getpid, kill_process, waitpid, Pid, Signal, WaitOptions};
use rustix::thread::{move_into_link_name_space, LinkNameSpaceType};
use serde_json::{Map, Value};
use simdisk::{Description, Disk};

use crate::error::{Doing, Error, Result};
use crate::isolate::{end_with, require_privilege};
use crate::protocol;
use crate::sys::{c_text, open, process_descriptor, stat_of, try_open};

const LONGEST: usize = 1 << 16;

/// The inner probe's end.
pub struct Broker {
    to_outer: OwnedFd,
}

/// The outer probe's end, and the namespaces that it was started in.
pub struct Outer {
    from_inner: OwnedFd,
    processes: OwnedFd,
    mounts: OwnedFd,
}

/// Create both ends. Call this before the process enters its own namespaces.
pub fn prepare() -> Result<(Broker, Outer)> {
    let (to_outer, from_inner) = Disk::sockets()?;
    let outer = Outer {
        from_inner,
        processes: open("/proc/self/ns/pid", libc::O_RDONLY, 0)?,
        mounts: open("/proc/self/ns/mnt", libc::O_RDONLY, 0)?,
    };
    Ok((Broker { to_outer }, outer))
}

impl Broker {
    /// Start a simulated disk. Returns its opened file and the disk.
    pub fn disk(&self, description: Map<String, Value>, size: u64) -> Result<(OwnedFd, Disk)> {
        require_privilege("make a simulated disk")?;
        let fuse = open("/dev/fuse", libc::O_RDWR | libc::O_NONBLOCK, 0)?;
        let mount = simdisk::mount(&fuse)?;
        let (control, theirs) = Disk::sockets()?;
        let text = Value::Object(description).to_string();
        hand_over(&self.to_outer, &text, [fuse.as_fd(), theirs.as_fd()])?;
        // From here on only the server has the device: if we had it too, we could end up waiting
        // for ourselves.
        drop((fuse, theirs));
        let (disk, inode) = Disk::started(control)?;
        let itself = c_text(&format!("/proc/self/fd/{}", mount.as_raw_fd()))?;
        let file = try_open(&itself, libc::O_RDWR, 0)
            .map_err(|errno| Error::errno("open the file of a simulated disk", errno))?;
        let found = stat_of(&file, "the file of a simulated disk")?;
        if found.st_size as u64 != size || found.st_ino != inode {
            return Err(Error::verify(format!(
                "open the file of a simulated disk: expected {size} bytes and inode {inode}, found {} and {}",
                found.st_size, found.st_ino
            )));
        }
        Ok((file, disk))
    }
}

impl Outer {
    /// Start disks on request until the inner process has ended; then end them. What is not written
    /// back by then fails with an error at once instead of waiting for a slow disk.
    pub fn keep_until_end(self, inner: pid_t) {
        // An old kernel has no pidfds: the inner probe sees the connection closed.
        let Ok(process) = process_descriptor(inner) else {
            return;
        };
        // Children must be created in our own PID namespace.
        let kind = Some(LinkNameSpaceType::ProcessID);
        if move_into_link_name_space(self.processes.as_fd(), kind).is_err() {
            return;
        }
        let mut servers = Vec::new();
        let mut hung_up = false;
        loop {
            let mut polled = vec![PollFd::new(&process, PollFlags::IN)];
            if !hung_up {
                polled.push(PollFd::new(&self.from_inner, PollFlags::IN));
            }
            if poll(&mut polled, None).is_err() {
                continue;
            }
            if !polled[0].revents().is_empty() {
                break;
            }
            match take(&self.from_inner) {
                Some((text, fuse, control)) => servers.extend(self.start(&text, fuse, control)),
                None => hung_up = true,
            }
        }
        for pid in servers {
            let _ = kill_process(pid, Signal::KILL);
            while let Err(rustix::io::Errno::INTR) = waitpid(Some(pid), WaitOptions::empty()) {}
        }
    }

    /// Start one server. Returns None if it could not be forked, which the requester sees as its
    /// end.
    fn start(&self, text: &str, fuse: OwnedFd, control: OwnedFd) -> Option<Pid> {
        let parent = getpid();
        // SAFETY: the process has one thread, so the child can go on like the parent.
        match unsafe { libc::fork() } {
            -1 => None,
            0 => {
                end_with(parent);
                let kind = Some(LinkNameSpaceType::Mount);
                if move_into_link_name_space(self.mounts.as_fd(), kind).is_err() {
                    exit(0);
                }
                keep_only([fuse.as_raw_fd(), control.as_raw_fd()]);
                let description = serde_json::from_str(text).unwrap_or_default();
                match protocol::fields::<Description>("image_modelled", description) {
                    Ok(description) => simdisk::run(&description, fuse, control),
                    Err(_) => exit(0),
                }
            }
            pid => Pid::from_raw(pid),
        }
    }
}

/// Close what belongs to the outer probe alone: conductor and inner probe notice its end by its
/// pipes.
fn keep_only(ours: [RawFd; 2]) {
    // SAFETY: the process uses no descriptors except these and standard error.
    unsafe {
        let most = libc::sysconf(libc::_SC_OPEN_MAX).clamp(64, 4096) as RawFd;
        for fd in (3..most).filter(|fd| !ours.contains(fd)) {
            libc::close(fd);
        }
        let nothing = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        libc::dup2(nothing, 0);
        libc::dup2(nothing, 1);
        libc::close(nothing);
    }
}

const TWO: usize = rustix::cmsg_space!(ScmRights(2));

fn hand_over(socket: &OwnedFd, text: &str, descriptors: [BorrowedFd<'_>; 2]) -> Result<()> {
    let mut room = [MaybeUninit::uninit(); TWO];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let parts = [IoSlice::new(text.as_bytes())];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)
        .doing(|| "request a simulated disk")?;
    Ok(())
}

/// Receive one request: its text and its two descriptors. None if the probe is gone.
fn take(socket: &OwnedFd) -> Option<(String, OwnedFd, OwnedFd)> {
    let mut text = vec![0_u8; LONGEST];
    let mut room = [MaybeUninit::uninit(); TWO];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let received = loop {
        let mut parts = [IoSliceMut::new(&mut text)];
        match recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            other => break other.ok()?,
        }
    };
    let mut descriptors = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    })?;
    let text = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
    Some((text, descriptors.next()?, descriptors.next()?))
}
