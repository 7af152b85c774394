//! Which files a command uses: those below some folders (the lab), and those elsewhere.
//!
//! Every process of the command is stopped at every system call (ptrace(2)), so the run is many times slower and is never timed.
//! While a process stands still, /proc says exactly what its descriptors and folders are, which no look at a path's text could. It
//! needs no privilege. Calls that go to io_uring or libaio, and those of 32-bit programs, are seen only where they open files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use libc::{c_int, c_long, c_void, pid_t};
use serde::Serialize;

use crate::error::{last_errno, Error, Result};

/// After so many stops the processes go on untraced, and the answer says that it is not complete.
const MOST_STOPS: u64 = 2_000_000;
/// So many paths are remembered, and so many of those elsewhere are named.
const MOST_PATHS: usize = 100_000;
const MOST_NAMED: usize = 8;
const ARCH_X86_64: u32 = 0xc000_003e;
const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
const ENTRY: u8 = 1;
const EXIT: u8 = 2;
const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_EXITKILL;
/// What any program uses to start, whatever it works on: named last.
const SYSTEM: [&str; 13] = [
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/sbin",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/sbin",
    "/usr/share/locale",
    "/usr/share/zoneinfo",
];
/// Made by the kernel as they are read: no file system's data.
const OF_THE_KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Numbers of calls on x86-64 that newer architectures do without, and libc does not name there.
mod old {
    use libc::c_long;
    pub const OPEN: c_long = 2;
    pub const STAT: c_long = 4;
    pub const LSTAT: c_long = 6;
    pub const ACCESS: c_long = 21;
    pub const GETDENTS: c_long = 78;
    pub const RENAME: c_long = 82;
    pub const MKDIR: c_long = 83;
    pub const RMDIR: c_long = 84;
    pub const CREAT: c_long = 85;
    pub const LINK: c_long = 86;
    pub const UNLINK: c_long = 87;
    pub const SYMLINK: c_long = 88;
    pub const READLINK: c_long = 89;
    pub const CHMOD: c_long = 90;
    pub const CHOWN: c_long = 92;
    pub const LCHOWN: c_long = 94;
    pub const UTIME: c_long = 132;
    pub const MKNOD: c_long = 133;
    pub const UTIMES: c_long = 235;
    pub const FUTIMESAT: c_long = 261;
}

/// struct ptrace_syscall_info (include/uapi/linux/ptrace.h)
#[repr(C)]
#[derive(Default)]
struct CallInfo {
    op: u8,
    padding: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    /// On entry number and arguments; on exit result, and whether that is an error.
    words: [u64; 8],
}

/// What one path was used for.
#[derive(Default)]
struct Use {
    /// Bytes of reads, writes and mappings.
    bytes: u64,
    /// Bytes of reads alone, by calls.
    read: u64,
    size: u64,
    opened: bool,
    written: bool,
}

/// What is seen of one command, all its processes together.
pub struct Touched {
    inside: Vec<PathBuf>,
    devices: HashSet<u64>,
    /// The folder that it is started in, and those above: to stand there uses nothing.
    stands_in: Option<PathBuf>,
    used: [BTreeMap<PathBuf, Use>; 2],
    left_out: bool,
    unseen: bool,
    stops: u64,
}

/// A call that was entered and has not returned.
struct Pending {
    number: c_long,
    arguments: [u64; 6],
    paths: Vec<(c_int, PathBuf)>,
}

impl Touched {
    /// `inside`: the folders of the lab; `devices`: block devices that are the lab's too, as in /sys/block.
    pub fn new(inside: &[String], devices: &[String], cwd: Option<String>) -> Result<Self> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Error::unsupported(
                "see which files a command uses: system calls are known for x86-64 only",
            ));
        }
        let canonical =
            |path: &String| fs::canonicalize(path).unwrap_or_else(|_| PathBuf::from(path));
        Ok(Touched {
            inside: inside.iter().map(canonical).collect(),
            devices: devices.iter().filter_map(|name| number(name)).collect(),
            stands_in: cwd.and_then(|path| fs::canonicalize(path).ok()),
            used: Default::default(),
            left_out: false,
            unseen: false,
            stops: 0,
        })
    }

    /// Follows a process that was started traced, and all that it starts, to its end; gives its status and usage. To be called
    /// by the thread that started it, which ends afterwards: then the kernel lets go of what still runs.
    pub fn follow(&mut self, leader: pid_t) -> Result<(c_int, libc::rusage)> {
        let mut known: HashMap<pid_t, Option<Pending>> = HashMap::new();
        loop {
            // SAFETY: a zeroed rusage is valid; both structures are ours.
            let (pid, status, usage) = unsafe {
                let (mut status, mut usage) = (0, std::mem::zeroed());
                let pid = libc::wait4(
                    -1,
                    &mut status,
                    libc::__WALL | libc::__WNOTHREAD,
                    &mut usage,
                );
                (pid, status, usage)
            };
            if pid == -1 {
                match last_errno() {
                    libc::EINTR => continue,
                    errno => return Err(Error::errno(format!("follow process {leader}"), errno)),
                }
            }
            if !libc::WIFSTOPPED(status) {
                known.remove(&pid);
                if pid == leader {
                    return Ok((status, usage));
                }
                continue;
            }
            self.stopped(pid, status, &mut known);
        }
    }

    /// One stop, after which the process goes on. Errors are those of a process that was killed meanwhile: wait4 will say so.
    fn stopped(&mut self, pid: pid_t, status: c_int, known: &mut HashMap<pid_t, Option<Pending>>) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        let new = !known.contains_key(&pid);
        let pending = known.entry(pid).or_default();
        let mut deliver = 0;
        if new {
            // SAFETY: no pointers are involved.
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, OPTIONS as usize) };
        }
        if signal == libc::SIGTRAP | 0x80 {
            self.stops += 1;
            self.at_call(pid, pending);
        } else if event == libc::PTRACE_EVENT_EXEC {
            *pending = None;
            self.opened(link(&format!("/proc/{pid}/exe")), false);
        } else if event == 0 && !(new && matches!(signal, libc::SIGSTOP | libc::SIGTRAP)) {
            deliver = signal;
        }
        let go_on = if self.stops > MOST_STOPS {
            self.left_out = true;
            libc::PTRACE_DETACH
        } else {
            libc::PTRACE_SYSCALL
        };
        // SAFETY: no pointers are involved.
        unsafe { libc::ptrace(go_on, pid, 0, deliver as usize) };
    }

    fn at_call(&mut self, pid: pid_t, pending: &mut Option<Pending>) {
        let mut info = CallInfo::default();
        // SAFETY: the structure has room for as much as is said.
        let told = unsafe {
            libc::ptrace(
                GET_SYSCALL_INFO,
                pid,
                std::mem::size_of::<CallInfo>(),
                &mut info as *mut CallInfo as *mut c_void,
            )
        };
        if told < 0 {
            self.unseen |= last_errno() == libc::EIO;
        } else if info.arch != ARCH_X86_64 {
            self.unseen = true;
        } else if info.op == ENTRY {
            let mut arguments = [0; 6];
            arguments.copy_from_slice(&info.words[1..7]);
            let number = info.words[0] as c_long;
            *pending = Some(Pending {
                number,
                arguments,
                paths: paths_of(pid, number, &arguments),
            });
        } else if info.op == EXIT {
            if let Some(call) = pending.take() {
                if info.words[1] & 0xff == 0 {
                    self.returned(pid, &call, info.words[0]);
                }
            }
        }
    }

    fn returned(&mut self, pid: pid_t, call: &Pending, result: u64) {
        let a = &call.arguments;
        match call.number {
            old::OPEN | old::CREAT | libc::SYS_openat | libc::SYS_openat2 => {
                let flags = match call.number {
                    old::OPEN => a[1],
                    libc::SYS_openat => a[2],
                    _ => libc::O_RDWR as u64,
                };
                let writes =
                    flags as c_int & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) != 0;
                self.opened(
                    descriptor(pid, result),
                    writes && call.number != libc::SYS_openat2,
                );
            }
            old::GETDENTS | libc::SYS_getdents64 if result > 0 => {
                if let Some(path) = descriptor(pid, a[0]) {
                    self.add(path, |used| used.opened = true);
                }
            }
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2 => self.moved(pid, a[0], result, true),
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2 => self.moved(pid, a[0], result, false),
            libc::SYS_copy_file_range | libc::SYS_splice => {
                self.moved(pid, a[0], result, true);
                self.moved(pid, a[2], result, false);
            }
            libc::SYS_sendfile => {
                self.moved(pid, a[1], result, true);
                self.moved(pid, a[0], result, false);
            }
            libc::SYS_mmap => {
                let anonymous = a[3] as c_int & libc::MAP_ANONYMOUS != 0;
                if !anonymous && a[2] as c_int & libc::PROT_EXEC == 0 {
                    self.mapped(pid, a[4], a[1]);
                }
            }
            libc::SYS_io_uring_enter | libc::SYS_io_submit => self.unseen = true,
            _ => {
                for (folder, path) in &call.paths {
                    self.named(pid, *folder, path);
                }
            }
        }
    }

    /// A file was opened; of folders nothing is used before they are listed.
    fn opened(&mut self, path: Option<PathBuf>, writes: bool) {
        let (path, found) = match path.map(|path| (fs::metadata(&path), path)) {
            Some((Ok(found), path)) => (path, found),
            _ => return,
        };
        if found.is_file() || found.file_type().is_block_device() {
            self.add(path, |used| {
                used.opened = true;
                used.written |= writes;
                used.size = used.size.max(found.len());
            });
        }
    }

    fn moved(&mut self, pid: pid_t, number: u64, bytes: u64, reads: bool) {
        if let Some(path) = data_of(pid, number).filter(|_| bytes > 0) {
            self.add(path, |used| {
                used.bytes += bytes;
                used.read += if reads { bytes } else { 0 };
                used.written |= !reads;
            });
        }
    }

    fn mapped(&mut self, pid: pid_t, number: u64, bytes: u64) {
        if let Some(path) = data_of(pid, number).filter(|path| !below_any(path, &SYSTEM)) {
            self.add(path, |used| used.bytes += bytes.min(used.size.max(4096)));
        }
    }

    /// A name was looked up, made or taken away. Where the file is gone by now, its folder says where it was.
    fn named(&mut self, pid: pid_t, folder: c_int, path: &Path) {
        let whole = match (path.is_absolute(), folder) {
            (true, _) => path.to_path_buf(),
            (false, libc::AT_FDCWD) => match link(&format!("/proc/{pid}/cwd")) {
                Some(own) => own.join(path),
                None => return,
            },
            (false, number) => match descriptor(pid, number as u64) {
                Some(own) => own.join(path),
                None => return,
            },
        };
        let own = whole
            .parent()
            .zip(whole.file_name())
            .and_then(|(parent, name)| {
                fs::canonicalize(parent)
                    .ok()
                    .map(|parent| parent.join(name))
            });
        let meant = fs::canonicalize(&whole).ok();
        if own != meant {
            // By way of a link: both were used.
            if let Some(path) = meant.clone() {
                self.looked_at(path);
            }
        }
        if let Some(path) = own.or(meant) {
            self.looked_at(path);
        }
    }

    fn looked_at(&mut self, path: PathBuf) {
        let stands = self
            .stands_in
            .as_ref()
            .is_some_and(|own| own.starts_with(&path));
        if !stands {
            self.add(path, |_| {});
        }
    }

    fn add(&mut self, path: PathBuf, change: impl FnOnce(&mut Use)) {
        let inside = self.is_inside(&path);
        if !inside && (below_any(&path, &OF_THE_KERNEL) || in_memory(&path)) {
            return;
        }
        let used = &mut self.used[usize::from(!inside)];
        if used.len() >= MOST_PATHS && !used.contains_key(&path) {
            self.left_out = true;
            return;
        }
        change(used.entry(path).or_default());
    }

    fn is_inside(&self, path: &Path) -> bool {
        self.inside.iter().any(|root| path.starts_with(root))
            || (path.starts_with("/dev")
                && fs::metadata(path).is_ok_and(|m| self.devices.contains(&m.rdev())))
    }

    /// `inside`: how many paths of the lab were used, `opened`, of which were opened or listed; `bytes` that were moved, and
    /// `read`, data of files that the command had not written itself, each byte once. `outside` the same, with the paths of most bytes, those of the system last.
    pub fn report(&self) -> Report {
        let sum = |used: &BTreeMap<PathBuf, Use>| {
            let own = used.values().filter(|one| !one.written);
            Sum {
                files: used.len(),
                opened: used.values().filter(|one| one.opened).count(),
                bytes: used.values().map(|one| one.bytes).sum(),
                read: own.map(|one| one.read.min(one.size)).sum(),
                paths: None,
            }
        };
        let [inside, outside] = &self.used;
        let mut most: Vec<_> = outside.iter().collect();
        most.sort_by_key(|(path, used)| {
            (
                below_any(path, &SYSTEM),
                !used.opened,
                std::cmp::Reverse(used.bytes),
            )
        });
        let mut elsewhere = sum(outside);
        let named = |(path, used): &(&PathBuf, &Use)| (path.to_string_lossy().into(), used.bytes);
        elsewhere.paths = Some(most.iter().take(MOST_NAMED).map(named).collect());
        Report {
            complete: !self.left_out,
            unseen: self.unseen,
            inside: sum(inside),
            outside: elsewhere,
        }
    }
}

/// What is answered.
#[derive(Serialize)]
pub struct Report {
    complete: bool,
    unseen: bool,
    inside: Sum,
    outside: Sum,
}

#[derive(Serialize)]
struct Sum {
    files: usize,
    opened: usize,
    bytes: u64,
    read: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<Vec<(String, u64)>>,
}

/// What memfd_create(2) made, such as the files that take what a command writes.
fn in_memory(path: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(b"/memfd:")
}

fn below_any(path: &Path, folders: &[&str]) -> bool {
    folders.iter().any(|folder| path.starts_with(folder))
}

/// A device's number as st_rdev has it.
fn number(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/sys/class/block/{name}/dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
}

fn link(path: &str) -> Option<PathBuf> {
    fs::read_link(path).ok().filter(|to| to.is_absolute())
}

fn descriptor(pid: pid_t, number: u64) -> Option<PathBuf> {
    link(&format!("/proc/{pid}/fd/{}", number as c_int))
}

/// The path of a descriptor that has data on a disk: no pipe, no socket, no terminal.
fn data_of(pid: pid_t, number: u64) -> Option<PathBuf> {
    let own = format!("/proc/{pid}/fd/{}", number as c_int);
    let kind = fs::metadata(&own).ok()?.file_type();
    (kind.is_file() || kind.is_block_device())
        .then(|| link(&own))
        .flatten()
}

/// The paths among a call's arguments, each with the descriptor of the folder that it starts from.
fn paths_of(pid: pid_t, number: c_long, a: &[u64; 6]) -> Vec<(c_int, PathBuf)> {
    const HERE: c_int = libc::AT_FDCWD;
    let at = |n: usize| a[n] as c_int;
    let wanted: &[(c_int, u64)] = match number {
        old::STAT
        | old::LSTAT
        | old::ACCESS
        | libc::SYS_truncate
        | old::MKDIR
        | old::RMDIR
        | old::UNLINK
        | old::READLINK
        | old::CHMOD
        | old::CHOWN
        | old::LCHOWN
        | old::UTIME
        | old::UTIMES
        | old::MKNOD
        | libc::SYS_getxattr
        | libc::SYS_lgetxattr
        | libc::SYS_setxattr
        | libc::SYS_lsetxattr
        | libc::SYS_listxattr
        | libc::SYS_llistxattr => &[(HERE, a[0])],
        old::RENAME | old::LINK => &[(HERE, a[0]), (HERE, a[1])],
        old::SYMLINK => &[(HERE, a[1])],
        libc::SYS_newfstatat
        | libc::SYS_statx
        | libc::SYS_faccessat
        | libc::SYS_faccessat2
        | libc::SYS_mkdirat
        | libc::SYS_mknodat
        | libc::SYS_unlinkat
        | libc::SYS_readlinkat
        | libc::SYS_fchmodat
        | libc::SYS_fchownat
        | libc::SYS_utimensat
        | old::FUTIMESAT => &[(at(0), a[1])],
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => {
            &[(at(0), a[1]), (at(2), a[3])]
        }
        libc::SYS_symlinkat => &[(at(1), a[2])],
        _ => &[],
    };
    wanted
        .iter()
        .filter_map(|(folder, address)| {
            let path = text_of(pid, *address).filter(|text| !text.as_os_str().is_empty())?;
            Some((*folder, path))
        })
        .collect()
}

/// A text in the memory of a process, up to its NUL; read page by page, because the next one may not be there.
fn text_of(pid: pid_t, address: u64) -> Option<PathBuf> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    while text.len() < libc::PATH_MAX as usize {
        let from = address + text.len() as u64;
        let mut piece = [0_u8; PAGE as usize];
        let room = (PAGE - from % PAGE) as usize;
        let ours = libc::iovec {
            iov_base: piece.as_mut_ptr().cast(),
            iov_len: room,
        };
        let theirs = libc::iovec {
            iov_base: from as *mut c_void,
            iov_len: room,
        };
        // SAFETY: our piece has room for a page; theirs is checked by the kernel.
        let n = unsafe { libc::process_vm_readv(pid, &ours, 1, &theirs, 1, 0) };
        let piece = &piece[..usize::try_from(n).ok()?];
        match piece.iter().position(|byte| *byte == 0) {
            Some(end) => {
                text.extend_from_slice(&piece[..end]);
                return Some(PathBuf::from(OsString::from_vec(text)));
            }
            None if piece.is_empty() => return None,
            None => text.extend_from_slice(piece),
        }
    }
    None
}
