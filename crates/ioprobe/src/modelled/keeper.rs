//! How the probe in its namespaces gets a modelled disk from the outer one, whose child the disk is, in neither of them.
//!
//! A server inside would be taken for something that a command has left behind, and worse, it would hold the probe's mounts: the
//! last to leave a mount namespace unmounts what is in it, and would wait for answers of its own. The kernel ends the servers
//! with the outer probe, which ends them before it gives up the mounts over them.

use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_ulong, pid_t};
use serde_json::{Map, Value};

use super::server::{self, ACCOUNT, AS_MODELLED, AT_ONCE};
use crate::error::{last_errno, Error, Result};
use crate::isolate::require_privilege;
use crate::protocol;
use crate::syscall::{c_text, check, mount_with, open, process_descriptor, stat_of, try_open};

const LONGEST: usize = 1 << 16;
/// How long a new disk may take for its memory.
const BEGINS_WITHIN_S: libc::time_t = 120;

/// The way to the outer probe.
pub struct Keeper {
    asking: OwnedFd,
}

/// The outer probe's end of it, and the namespaces that it was started in.
pub struct Outer {
    asked: OwnedFd,
    processes: OwnedFd,
    mounts: OwnedFd,
}

/// A modelled disk of this session; it goes when this is dropped.
pub struct Disk {
    control: OwnedFd,
    pub pid: u32,
}

/// To be called before the process moves to namespaces of its own.
pub fn prepare() -> Result<(Keeper, Outer)> {
    let (asking, asked) = pair()?;
    let outer = Outer {
        asked,
        processes: open("/proc/self/ns/pid", libc::O_RDONLY, 0)?,
        mounts: open("/proc/self/ns/mnt", libc::O_RDONLY, 0)?,
    };
    Ok((Keeper { asking }, outer))
}

impl Keeper {
    /// Starts a modelled disk: its file, opened, and the disk itself.
    pub fn disk(&self, given: Map<String, Value>, size: u64) -> Result<(OwnedFd, Disk)> {
        require_privilege("make a modelled disk")?;
        let fuse = open("/dev/fuse", libc::O_RDWR | libc::O_NONBLOCK, 0)?;
        let fd = fuse.as_raw_fd().to_string();
        let mode = format!("{:o}", libc::S_IFREG | 0o600);
        let options = [
            ("fd", &*fd),
            ("rootmode", &mode),
            ("user_id", "0"),
            ("group_id", "0"),
        ];
        let mount = mount_with("fuse", &options)?;
        let (control, theirs) = pair()?;
        set_patience(&control)?;
        hand_over(
            &self.asking,
            &Value::Object(given).to_string(),
            [&fuse, &theirs],
        )?;
        // From here on the server alone has the device: were it ours too, we could be waiting for ourselves.
        drop((fuse, theirs));
        let answer = listen(&control)?;
        let pid = match answer["pid"].as_u64() {
            Some(pid) => pid as u32,
            None => {
                let message = answer["error"]["message"]
                    .as_str()
                    .unwrap_or("it has ended");
                let doing = format!("make a modelled disk: {message}");
                return Err(match answer["error"]["errno"].as_i64() {
                    Some(errno) => Error::errno("make a modelled disk", errno as i32),
                    None => Error::bad(doing),
                });
            }
        };
        let itself = c_text(&format!("/proc/self/fd/{}", mount.as_raw_fd()))?;
        let file = try_open(&itself, libc::O_RDWR, 0)
            .map_err(|errno| Error::errno("open the file of a modelled disk", errno))?;
        let found = stat_of(&file, "the file of a modelled disk")?;
        if found.st_size as u64 != size || Some(found.st_ino) != answer["inode"].as_u64() {
            return Err(Error::verify(format!(
                "open the file of a modelled disk: wanted {size} bytes and {answer}, found {} bytes and inode {}",
                found.st_size, found.st_ino
            )));
        }
        Ok((file, Disk { control, pid }))
    }
}

impl Disk {
    /// What the disk says of itself so far.
    pub fn account(&self) -> Result<Value> {
        self.tell(ACCOUNT)
    }

    /// Whether it takes the time that the model takes. What it says of itself is not added to meanwhile.
    pub fn set_pace(&self, modelled: bool) -> Result<Value> {
        self.tell(if modelled { AS_MODELLED } else { AT_ONCE })
    }

    fn tell(&self, what: u8) -> Result<Value> {
        let word = [what];
        // SAFETY: the byte is ours.
        let n = unsafe {
            let fd = self.control.as_raw_fd();
            libc::send(fd, word.as_ptr().cast(), 1, libc::MSG_NOSIGNAL)
        };
        if n == -1 {
            return Err(Error::last_os("ask a modelled disk"));
        }
        listen(&self.control)
    }
}

impl Outer {
    /// Starts what is asked for until the inner process has ended; then ends it. What is not written back by then meets an error
    /// at once instead of a slow disk.
    pub fn keep_until_end(self, inner: pid_t) {
        let process = match process_descriptor(inner) {
            Ok(process) => process,
            Err(_) => return, // an old kernel: the one who asks is told that it has ended
        };
        // SAFETY: no pointers are involved. Children are to be born where we are ourselves.
        if unsafe { libc::setns(self.processes.as_raw_fd(), libc::CLONE_NEWPID) } == -1 {
            return;
        }
        let mut servers = Vec::new();
        let mut polled = [process.as_raw_fd(), self.asked.as_raw_fd()].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        while polled[0].revents == 0 {
            // SAFETY: two structures, ours.
            let n = unsafe { libc::poll(polled.as_mut_ptr(), 2, -1) };
            if n > 0 && polled[1].revents != 0 {
                match take(&self.asked) {
                    Ok(Some((text, fuse, control))) => {
                        servers.extend(self.start(&text, fuse, control));
                    }
                    _ => polled[1].fd = -1, // hung up
                }
            }
        }
        for pid in servers {
            // SAFETY: no pointers are involved; a child that was not reaped keeps its id.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                while libc::waitpid(pid, std::ptr::null_mut(), 0) == -1
                    && last_errno() == libc::EINTR
                {}
            }
        }
    }

    /// One server; None where it could not be forked, which whoever asked for it sees as its end.
    fn start(&self, text: &str, fuse: OwnedFd, control: OwnedFd) -> Option<pid_t> {
        // SAFETY: getpid cannot fail; the process has one thread, so the child may go on as the parent would.
        let parent = unsafe { libc::getpid() };
        match unsafe { libc::fork() } {
            -1 => None,
            0 => {
                tie(parent);
                // SAFETY: no pointers are involved.
                if unsafe { libc::setns(self.mounts.as_raw_fd(), libc::CLONE_NEWNS) } == -1 {
                    leave();
                }
                keep_only([fuse.as_raw_fd(), control.as_raw_fd()]);
                let given = serde_json::from_str(text).unwrap_or_default();
                match protocol::fields::<protocol::ModelledImage>("image_modelled", given) {
                    Ok(request) => server::run(&request, fuse, control),
                    Err(_) => leave(),
                }
            }
            pid => Some(pid),
        }
    }
}

/// Closes what belongs to the outer probe alone: by its pipes conductor and inner probe learn of its end.
fn keep_only(ours: [RawFd; 2]) {
    // SAFETY: descriptors of a process that uses none of them but these and standard error.
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

fn leave() -> ! {
    // SAFETY: runs nothing of ours.
    unsafe { libc::_exit(0) }
}

/// Dies with its parent.
fn tie(parent: pid_t) {
    // SAFETY: no pointers are involved.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as c_ulong);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
    }
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends: [c_int; 2] = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for both descriptors, which are new and ours.
    unsafe {
        check(
            libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()),
            || "make a pair of sockets".to_string(),
        )?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// A disk that was stopped by a signal is not waited for for ever.
fn set_patience(control: &OwnedFd) -> Result<()> {
    let time = libc::timeval {
        tv_sec: BEGINS_WITHIN_S,
        tv_usec: 0,
    };
    // SAFETY: the structure is ours and of this size.
    check(
        unsafe {
            libc::setsockopt(
                control.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVTIMEO,
                (&time as *const libc::timeval).cast(),
                std::mem::size_of::<libc::timeval>() as u32,
            )
        },
        || "set how long to wait for a modelled disk".to_string(),
    )?;
    Ok(())
}

fn listen(control: &OwnedFd) -> Result<Value> {
    let mut text = vec![0_u8; LONGEST];
    // SAFETY: the buffer is ours.
    let n = unsafe { libc::recv(control.as_raw_fd(), text.as_mut_ptr().cast(), text.len(), 0) };
    match n {
        -1 => Err(Error::last_os("ask a modelled disk")),
        0 => Err(Error::errno("ask a modelled disk: it has ended", libc::EIO)),
        n => serde_json::from_slice(&text[..n as usize])
            .map_err(|cause| Error::verify(format!("ask a modelled disk: {cause}"))),
    }
}

/// Room for two descriptors in a control message (cmsg(3)), aligned as it has to be.
#[repr(C)]
struct Room {
    align: [libc::cmsghdr; 0],
    bytes: [u8; 64],
}

const TWO: u32 = 2 * std::mem::size_of::<RawFd>() as u32;

fn message(part: &mut libc::iovec, room: &mut Room) -> libc::msghdr {
    // SAFETY: all of it are numbers and pointers, for which zero is a value; CMSG_SPACE only computes.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = part;
        message.msg_iovlen = 1;
        message.msg_control = room.bytes.as_mut_ptr().cast();
        message.msg_controllen = libc::CMSG_SPACE(TWO) as _;
        message
    }
}

fn hand_over(socket: &OwnedFd, text: &str, descriptors: [&OwnedFd; 2]) -> Result<()> {
    let mut part = libc::iovec {
        iov_base: text.as_ptr() as *mut _,
        iov_len: text.len(),
    };
    let mut room = Room {
        align: [],
        bytes: [0; 64],
    };
    let message = message(&mut part, &mut room);
    // SAFETY: the room holds one control message with two descriptors.
    let sent = unsafe {
        let control = libc::CMSG_FIRSTHDR(&message);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(TWO) as _;
        let data = libc::CMSG_DATA(control).cast::<RawFd>();
        for (place, descriptor) in descriptors.iter().enumerate() {
            data.add(place).write_unaligned(descriptor.as_raw_fd());
        }
        libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL)
    };
    match sent {
        -1 => Err(Error::last_os("ask for a modelled disk")),
        _ => Ok(()),
    }
}

/// One request: its text and its two descriptors. None where the probe has gone.
fn take(socket: &OwnedFd) -> Result<Option<(String, OwnedFd, OwnedFd)>> {
    let mut text = vec![0_u8; LONGEST];
    let mut part = libc::iovec {
        iov_base: text.as_mut_ptr().cast(),
        iov_len: text.len(),
    };
    let mut room = Room {
        align: [],
        bytes: [0; 64],
    };
    let mut message = message(&mut part, &mut room);
    let fd = socket.as_raw_fd();
    // SAFETY: buffer and room are ours; descriptors that come are new and ours.
    unsafe {
        let n = loop {
            match libc::recvmsg(fd, &mut message, libc::MSG_CMSG_CLOEXEC) {
                -1 if last_errno() == libc::EINTR => {}
                n => break n,
            }
        };
        let control = libc::CMSG_FIRSTHDR(&message);
        if n <= 0 || control.is_null() || (*control).cmsg_len as u32 != libc::CMSG_LEN(TWO) {
            return Ok(None);
        }
        let data = libc::CMSG_DATA(control).cast::<RawFd>();
        let descriptor = |place: usize| OwnedFd::from_raw_fd(data.add(place).read_unaligned());
        text.truncate(n as usize);
        let text = String::from_utf8_lossy(&text).into_owned();
        Ok(Some((text, descriptor(0), descriptor(1))))
    }
}
