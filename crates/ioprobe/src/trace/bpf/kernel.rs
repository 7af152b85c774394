//! The parts of bpf(2) needed here: maps, programs, and attaching programs to tracepoints.
//!
//! Everything is tied to descriptors: when they are closed, with the probe at the latest, the
//! kernel frees it all.

use std::os::unix::io::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use libc::{c_int, c_long};

use super::assembler::Instruction;
use crate::error::{last_errno, Error, Result};
use crate::sys::new_descriptor;

const MAP_CREATE: c_int = 0;
const MAP_LOOKUP: c_int = 1;
const MAP_UPDATE: c_int = 2;
const MAP_NEXT_KEY: c_int = 4;
const PROG_LOAD: c_int = 5;
const INFO_BY_FD: c_int = 15;
const TRACEPOINT_OPEN: c_int = 17;
const BTF_LOAD: c_int = 18;

const PROG_TYPE_TRACING: u32 = 26;
const ATTACH_TO_RAW_TRACEPOINT: u32 = 23;
/// Only programs with a GPL-compatible licence may read the kernel's structures; ours is
/// compatible.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";
const LOG_BYTES: usize = 1 << 16;

#[derive(Clone, Copy)]
pub enum MapKind {
    Hash = 1,
    /// One value for all CPUs, which we can write without a system call: see `Gate`.
    Shared = 2,
    PerProcessorHash = 5,
    PerProcessorArray = 6,
    /// See `Ring`.
    Ring = 27,
    TaskStorage = 29,
}

/// The parameters of a map; sizes in bytes.
pub struct MapShape {
    pub kind: MapKind,
    pub key: u32,
    pub value: u32,
    pub entries: u32,
}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
    interface: u32,
    types: u32,
    key_type: u32,
    value_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    licence: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_kind: u32,
    types: u32,
    function_size: u32,
    functions: u64,
    function_count: u32,
    line_size: u32,
    lines: u64,
    line_count: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct TracepointOpen {
    name: u64,
    program: u32,
    padding: u32,
}

#[repr(C)]
#[derive(Default)]
struct InfoByFd {
    descriptor: u32,
    size: u32,
    info: u64,
}

#[repr(C)]
#[derive(Default)]
struct BtfLoad {
    blob: u64,
    log: u64,
    size: u32,
    log_size: u32,
    log_level: u32,
    padding: u32,
}

/// SAFETY: the pointers in `attributes` must be valid for what the command does with them.
unsafe fn raw<T>(command: c_int, attributes: &mut T) -> c_long {
    let size = std::mem::size_of::<T>();
    libc::syscall(libc::SYS_bpf, command, attributes as *mut T, size)
}

/// SAFETY: as for `raw`; the command must be one that returns no descriptor.
unsafe fn bpf<T>(command: c_int, attributes: &mut T) -> std::result::Result<(), i32> {
    match raw(command, attributes) {
        -1 => Err(last_errno()),
        _ => Ok(()),
    }
}

/// SAFETY: as for `raw`; the command must be one that returns a descriptor (close-on-exec, like all
/// of bpf's).
unsafe fn descriptor<T>(command: c_int, attributes: &mut T) -> std::result::Result<OwnedFd, i32> {
    new_descriptor(raw(command, attributes))
}

pub struct Map {
    pub fd: OwnedFd,
    /// Bytes that a look-up fills.
    filled: usize,
    key: usize,
}

impl Map {
    /// Create a map. `types`: the descriptor of key type 1 and value type 2, for task storage.
    pub fn make(shape: &MapShape, types: Option<&OwnedFd>, processors: usize) -> Result<Self> {
        const NO_PREALLOCATION: u32 = 1;
        const MAPPABLE: u32 = 1 << 10;
        let per_processor = matches!(
            shape.kind,
            MapKind::PerProcessorHash | MapKind::PerProcessorArray
        );
        let mut attributes = MapCreate {
            kind: shape.kind as u32,
            key: shape.key,
            value: shape.value,
            entries: shape.entries,
            flags: match shape.kind {
                MapKind::TaskStorage => NO_PREALLOCATION,
                MapKind::Shared => MAPPABLE,
                _ => 0,
            },
            ..MapCreate::default()
        };
        if let Some(types) = types {
            attributes.types = types.as_raw_fd() as u32;
            attributes.key_type = 1;
            attributes.value_type = 2;
        }
        // SAFETY: no pointers in these attributes.
        let fd = unsafe { descriptor(MAP_CREATE, &mut attributes) }
            .map_err(|errno| Error::errno("make a BPF map", errno))?;
        let each = (shape.value as usize + 7) & !7;
        Ok(Map {
            fd,
            filled: if per_processor {
                each * processors
            } else {
                each
            },
            key: shape.key as usize,
        })
    }

    /// Return the words of a key's value, one CPU after the other; None if the key does not exist.
    pub fn look_up(&self, key: &[u8]) -> Result<Option<Vec<u64>>> {
        assert_eq!(key.len(), self.key);
        let mut value = vec![0_u64; self.filled / 8];
        // SAFETY: key and value have the lengths that the kernel expects.
        let found = unsafe {
            bpf(
                MAP_LOOKUP,
                &mut self.element(key, value.as_mut_ptr() as u64),
            )
        };
        match found {
            Ok(_) => Ok(Some(value)),
            Err(libc::ENOENT) => Ok(None),
            Err(errno) => Err(Error::errno("read a BPF map", errno)),
        }
    }

    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<()> {
        assert_eq!((key.len(), value.len()), (self.key, self.filled));
        // SAFETY: as above; the kernel only reads the value.
        unsafe { bpf(MAP_UPDATE, &mut self.element(key, value.as_ptr() as u64)) }
            .map_err(|errno| Error::errno("write a BPF map", errno))
    }

    pub fn keys(&self) -> Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut next = vec![0; self.key];
            let mut attributes = Element {
                map: self.fd.as_raw_fd() as u32,
                key: keys.last().map_or(0, |key| key.as_ptr() as u64),
                value: next.as_mut_ptr() as u64,
                ..Element::default()
            };
            // SAFETY: both keys have the map's length, or there is none yet.
            match unsafe { bpf(MAP_NEXT_KEY, &mut attributes) } {
                Ok(_) => keys.push(next),
                Err(libc::ENOENT) => return Ok(keys),
                Err(errno) => return Err(Error::errno("list a BPF map", errno)),
            }
        }
    }

    fn element(&self, key: &[u8], value: u64) -> Element {
        Element {
            map: self.fd.as_raw_fd() as u32,
            key: key.as_ptr() as u64,
            value,
            ..Element::default()
        }
    }
}

/// A word that programs read, and that we write through mapped memory: a job may by then run as a
/// user who is not allowed to call bpf(2).
pub struct Gate {
    map: Map,
    word: *mut AtomicU64,
}

impl Gate {
    const BYTES: usize = 4096;

    /// Create a closed gate: the word is 0.
    pub fn make() -> Result<Self> {
        let shape = MapShape {
            kind: MapKind::Shared,
            key: 4,
            value: 8,
            entries: 1,
        };
        let map = Map::make(&shape, None, 1)?;
        // SAFETY: the kernel chooses the address; the map has a page.
        let word = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                Gate::BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.fd.as_raw_fd(),
                0,
            )
        };
        if word == libc::MAP_FAILED {
            return Err(Error::last_os("map a BPF map"));
        }
        Ok(Gate {
            map,
            word: word.cast(),
        })
    }

    pub fn descriptor(&self) -> i32 {
        self.map.fd.as_raw_fd()
    }

    pub fn set(&self, open: bool) {
        // SAFETY: the page is mapped for as long as this lives.
        unsafe { &*self.word }.store(u64::from(open), SeqCst);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: we own the page, and nothing uses it afterwards.
        unsafe { libc::munmap(self.word.cast(), Gate::BYTES) };
    }
}

/// Load our own types into the kernel.
pub fn load_types(blob: &[u8]) -> Result<OwnedFd> {
    let mut attributes = BtfLoad {
        blob: blob.as_ptr() as u64,
        size: blob.len() as u32,
        ..BtfLoad::default()
    };
    // SAFETY: the blob is valid for its length.
    unsafe { descriptor(BTF_LOAD, &mut attributes) }
        .map_err(|errno| Error::errno("load types for BPF maps", errno))
}

pub struct Program {
    fd: OwnedFd,
}

impl Program {
    /// Verify and load a program for the tracepoint with this type of arguments.
    pub fn load(name: &str, instructions: &[Instruction], tracepoint: u32) -> Result<Self> {
        let mut attributes = ProgLoad {
            kind: PROG_TYPE_TRACING,
            count: instructions.len() as u32,
            instructions: instructions.as_ptr() as u64,
            licence: LICENCE.as_ptr() as u64,
            attach_kind: ATTACH_TO_RAW_TRACEPOINT,
            attach_type: tracepoint,
            ..ProgLoad::default()
        };
        // SAFETY: instructions and licence are valid for their lengths.
        let loaded = unsafe { descriptor(PROG_LOAD, &mut attributes) };
        if let Ok(fd) = loaded {
            return Ok(Program { fd });
        }
        // Load again to get the reason: the log costs time and needs a large enough buffer.
        let mut log = vec![0_u8; LOG_BYTES];
        attributes.log_level = 1;
        attributes.log_size = LOG_BYTES as u32;
        attributes.log = log.as_mut_ptr() as u64;
        // SAFETY: as above, and so is the log.
        match unsafe { descriptor(PROG_LOAD, &mut attributes) } {
            Ok(fd) => Ok(Program { fd }),
            Err(errno) => {
                let log_text = String::from_utf8_lossy(&log);
                let log_text = log_text.trim_matches('\0').trim_end();
                let last: Vec<&str> = log_text.lines().rev().take(4).collect();
                let why: String = last.iter().rev().map(|line| format!("; {line}")).collect();
                Err(Error::errno(
                    format!("load the BPF program {name}{why}"),
                    errno,
                ))
            }
        }
    }

    /// Attach the program. It runs until the returned value is dropped.
    pub fn attach(&self) -> Result<OwnedFd> {
        let mut attributes = TracepointOpen {
            program: self.fd.as_raw_fd() as u32,
            ..TracepointOpen::default()
        };
        // SAFETY: no name is given: the program determines the tracepoint.
        unsafe { descriptor(TRACEPOINT_OPEN, &mut attributes) }
            .map_err(|errno| Error::errno("attach a BPF program to its tracepoint", errno))
    }

    /// Return how often a run was skipped because the program was already running
    /// (bpf_prog_info.recursion_misses, since Linux 5.12).
    pub fn missed(&self) -> Result<u64> {
        const WORDS: usize = 27;
        let mut info = [0_u64; WORDS];
        let mut attributes = InfoByFd {
            descriptor: self.fd.as_raw_fd() as u32,
            size: (WORDS * 8) as u32,
            info: info.as_mut_ptr() as u64,
        };
        // SAFETY: the structure has as much room as stated.
        unsafe { bpf(INFO_BY_FD, &mut attributes) }
            .map_err(|errno| Error::errno("query a BPF program", errno))?;
        Ok(info[WORDS - 1])
    }
}
