//! One io_uring: set up with what this kernel offers, filled, entered and reaped without a library in between.
//!
//! What a kernel has is found by asking for it: set-up flags from the best combination down to none, registrations each by
//! itself; `features` says what there is. Single issuer with deferred task work came with Linux 6.1, registered ring
//! descriptors with 5.18, rings without an array of indices with 6.6.

mod abi;

use std::mem::size_of;
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_long, c_uint, c_void};

use self::abi::*;
pub use self::abi::{Cqe, Sqe, FIXED_FILE, READ, READ_FIXED, WRITE, WRITE_FIXED};
use crate::error::{last_errno, Error, Result};
use crate::syscall::check;

const SETUPS: [u32; 5] = [
    SUBMIT_ALL | SINGLE_ISSUER | DEFER_TASKRUN | NO_SQARRAY,
    SUBMIT_ALL | SINGLE_ISSUER | DEFER_TASKRUN,
    SUBMIT_ALL | COOP_TASKRUN,
    SUBMIT_ALL,
    0,
];
const NAMES: [(u32, &str); 4] = [
    (SINGLE_ISSUER, "single-issuer"),
    (DEFER_TASKRUN, "deferred-task-work"),
    (COOP_TASKRUN, "cooperative-task-work"),
    (NO_SQARRAY, "no-index-array"),
];

struct Mapping {
    start: *mut u8,
    length: usize,
}

impl Mapping {
    fn of(fd: &OwnedFd, length: usize, offset: i64) -> Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping of the ring's own memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                access,
                flags,
                fd.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os("map an io_uring"));
        }
        Ok(Mapping {
            start: start.cast(),
            length,
        })
    }

    fn at<T>(&self, offset: u32) -> *mut T {
        // SAFETY: the kernel gives offsets within what it maps, aligned for what lies there.
        unsafe { self.start.add(offset as usize).cast() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

pub struct Ring {
    sq_tail: *const AtomicU32,
    sq_mask: u32,
    sqes: *mut Sqe,
    tail: u32,
    cq_head: *const AtomicU32,
    cq_tail: *const AtomicU32,
    cq_mask: u32,
    cqes: *const Cqe,
    /// What io_uring_enter is given: the descriptor, or its number among the registered ones.
    entered: c_int,
    enter_flags: c_uint,
    pub features: Vec<&'static str>,
    // Mappings go before the descriptor.
    _sq: Mapping,
    _cq: Mapping,
    _entries: Mapping,
    fd: OwnedFd,
}

impl Ring {
    /// A ring with room for so many submissions, for use by this thread alone.
    pub fn new(entries: u32) -> Result<Self> {
        let (fd, given) = set_up(entries)?;
        let sq = Mapping::of(
            &fd,
            (given.sq.array + given.sq_entries * size_of::<u32>() as u32) as usize,
            OFFSET_SQ_RING,
        )?;
        let cq = Mapping::of(
            &fd,
            given.cq.cqes as usize + given.cq_entries as usize * size_of::<Cqe>(),
            OFFSET_CQ_RING,
        )?;
        let submissions = Mapping::of(
            &fd,
            given.sq_entries as usize * size_of::<Sqe>(),
            OFFSET_SQES,
        )?;
        if given.flags & NO_SQARRAY == 0 {
            // Submission n is entry n: said once.
            for n in 0..given.sq_entries {
                // SAFETY: the array has as many places.
                unsafe { sq.at::<u32>(given.sq.array).add(n as usize).write(n) };
            }
        }
        let mut ring = Ring {
            sq_tail: sq.at(given.sq.tail),
            sq_mask: given.sq_entries - 1,
            sqes: submissions.at(0),
            tail: 0,
            cq_head: cq.at(given.cq.head),
            cq_tail: cq.at(given.cq.tail),
            cq_mask: given.cq_entries - 1,
            cqes: cq.at(given.cq.cqes),
            entered: fd.as_raw_fd(),
            enter_flags: 0,
            features: (NAMES.iter())
                .filter(|(flag, _)| given.flags & flag != 0)
                .map(|(_, name)| *name)
                .collect(),
            _sq: sq,
            _cq: cq,
            _entries: submissions,
            fd,
        };
        ring.register_itself();
        Ok(ring)
    }

    /// Whether the kernel keeps these pages pinned, so that no operation has to.
    pub fn register_buffers(&mut self, buffers: &[libc::iovec]) -> bool {
        let there = self.register(
            REGISTER_BUFFERS,
            buffers.as_ptr().cast(),
            buffers.len() as c_uint,
        ) >= 0;
        if there {
            self.features.push("registered-buffers");
        }
        there
    }

    /// Whether the kernel holds these files, so that no operation has to look one up.
    pub fn register_files(&mut self, files: &[RawFd]) -> bool {
        let there =
            self.register(REGISTER_FILES, files.as_ptr().cast(), files.len() as c_uint) >= 0;
        if there {
            self.features.push("registered-files");
        }
        there
    }

    fn register_itself(&mut self) {
        let mut update = ResourceUpdate {
            offset: u32::MAX, // any free place
            reserved: 0,
            data: self.fd.as_raw_fd() as u64,
        };
        let itself = ptr::addr_of_mut!(update);
        if self.register(REGISTER_RING_FDS, itself as *const c_void, 1) == 1 {
            // SAFETY: the kernel has written the place that it took.
            self.entered = unsafe { ptr::read_volatile(itself) }.offset as c_int;
            self.enter_flags |= ENTER_REGISTERED_RING;
            self.features.push("registered-ring");
        }
    }

    fn register(&self, what: c_uint, of: *const c_void, count: c_uint) -> c_long {
        // SAFETY: `of` points to as many of what is registered.
        unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.fd.as_raw_fd(),
                what,
                of,
                count,
            )
        }
    }

    /// Puts a submission into the ring, for the next `enter`; there must be room.
    #[inline(always)]
    pub fn push(&mut self, submission: Sqe) {
        // SAFETY: the index is within the ring, and the kernel has read what was there.
        unsafe {
            self.sqes
                .add((self.tail & self.sq_mask) as usize)
                .write(submission)
        };
        self.tail = self.tail.wrapping_add(1);
    }

    /// Hands `submit` submissions over. With `look` the kernel also finishes what is ready to be, and waits until `wait`
    /// completions are there. How many were taken, or a negative errno.
    #[inline(always)]
    pub fn enter(&mut self, submit: u32, wait: u32, look: bool) -> i32 {
        // SAFETY: the ring's own memory; the kernel reads entries only up to this tail.
        unsafe {
            (*self.sq_tail).store(self.tail, Ordering::Release);
            let flags = self.enter_flags | if look { ENTER_GETEVENTS } else { 0 };
            enter(self.entered, submit, wait, flags)
        }
    }

    /// Shows all completions that are there, and leaves them.
    #[inline(always)]
    pub fn peek(&self, each: impl FnMut(&Cqe)) {
        self.show(each);
    }

    /// Takes all completions that are there.
    #[inline(always)]
    pub fn reap(&mut self, each: impl FnMut(&Cqe)) {
        let seen = self.show(each);
        // SAFETY: the ring's own memory.
        unsafe { (*self.cq_head).store(seen, Ordering::Release) };
    }

    /// Where those that were shown end.
    #[inline(always)]
    fn show(&self, mut each: impl FnMut(&Cqe)) -> u32 {
        // SAFETY: the ring's own memory; between head and tail the kernel writes no more.
        unsafe {
            let mut head = (*self.cq_head).load(Ordering::Relaxed);
            let tail = (*self.cq_tail).load(Ordering::Acquire);
            while head != tail {
                each(&*self.cqes.add((head & self.cq_mask) as usize));
                head = head.wrapping_add(1);
            }
            head
        }
    }
}

/// A ring that is closed is taken apart by the kernel later, in its own time, and holds the files that are registered with it
/// until then: a file system could not be unmounted. A registered ring is not even closed before this thread ends. What was
/// never registered is an error that says nothing.
impl Drop for Ring {
    fn drop(&mut self) {
        self.register(UNREGISTER_FILES, ptr::null(), 0);
        self.register(UNREGISTER_BUFFERS, ptr::null(), 0);
        if self.enter_flags & ENTER_REGISTERED_RING != 0 {
            let mut update = ResourceUpdate {
                offset: self.entered as u32,
                reserved: 0,
                data: 0,
            };
            let itself = ptr::addr_of_mut!(update);
            self.register(UNREGISTER_RING_FDS, itself as *const c_void, 1);
        }
    }
}

fn set_up(entries: u32) -> Result<(OwnedFd, Parameters)> {
    let mut errno = 0;
    for flags in SETUPS {
        let mut given = Parameters {
            flags,
            ..Parameters::default()
        };
        let itself: *mut Parameters = &mut given;
        // SAFETY: the structure is ours and as the kernel knows it; the descriptor is new and ours.
        unsafe {
            match libc::syscall(libc::SYS_io_uring_setup, entries, itself) {
                -1 => errno = last_errno(),
                fd => {
                    let fd = OwnedFd::from_raw_fd(fd as c_int);
                    check(
                        libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC),
                        || "keep an io_uring from programs".to_string(),
                    )?;
                    return Ok((fd, given));
                }
            }
        }
        if errno != libc::EINVAL {
            break;
        }
    }
    match errno {
        libc::ENOSYS | libc::EPERM | libc::EACCES => Err(Error::unsupported(format!(
            "set up an io_uring: wanted a kernel that has it and lets us, found: {}",
            crate::error::errno_text(errno)
        ))),
        errno => Err(Error::errno("set up an io_uring", errno)),
    }
}

/// io_uring_enter(2) without the C library's variadic wrapper and its errno.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn enter(ring: c_int, submit: c_uint, wait: c_uint, flags: c_uint) -> i32 {
    let mut result = libc::SYS_io_uring_enter;
    std::arch::asm!(
        "syscall",
        inlateout("rax") result,
        in("rdi") i64::from(ring),
        in("rsi") u64::from(submit),
        in("rdx") u64::from(wait),
        in("r10") u64::from(flags),
        in("r8") 0_u64,
        in("r9") 0_u64,
        lateout("rcx") _,
        lateout("r11") _,
        options(nostack),
    );
    result as i32
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn enter(ring: c_int, submit: c_uint, wait: c_uint, flags: c_uint) -> i32 {
    let no_signals = ptr::null::<c_void>();
    match libc::syscall(
        libc::SYS_io_uring_enter,
        ring,
        submit,
        wait,
        flags,
        no_signals,
        0_usize,
    ) {
        -1 => -last_errno(),
        taken => taken as i32,
    }
}
