//! Ages a file system in seconds instead of years: fragmented free space, and all blocks written
//! once.
//!
//! Files are created and removed in rounds, determined by a seed: after each round a random quarter
//! of them is removed, and new ones take their place. Sizes are distributed evenly over powers of
//! two, roughly as in real file systems (Agrawal, Bolosky, Douceur, Lorch: A Five-Year Study of
//! File-System Metadata, FAST 2007).

use rustix::io::Errno;
use std::fs;
use std::os::unix::io::{AsRawFd, OwnedFd};
use std::time::Instant;

use serde_json::{json, Value};

use crate::content::{key, word, Content, Kind};
use crate::error::{last_errno, Doing, Error, Result};
use crate::protocol::{Age, Path};
use crate::sys::{c_text, make_folder, open, try_open, write_all};

const SMALLEST: u64 = 4096;
/// Number of sizes, powers of two from the smallest: 4 KiB to 1 MiB.
const SIZES: u64 = 9;
const LARGEST: usize = 1 << 20;
/// One file in this many is removed after a round.
const GOES: u64 = 4;
const MOST_ROUNDS: u32 = 1000;
const FITRIM: libc::c_ulong = 0xc018_5879;

/// Fill the file system of `path` to `percent` of its blocks, in `rounds`, with files in the new
/// folder `path`.
pub fn age(request: &Age) -> Result<Value> {
    if !(1..=99).contains(&request.percent) || !(1..=MOST_ROUNDS).contains(&request.rounds) {
        return Err(Error::bad(format!(
            "age {}: expected 1 to 99 percent and 1 to {MOST_ROUNDS} rounds, found {} and {}",
            request.path, request.percent, request.rounds
        )));
    }
    let start = Instant::now();
    make_folder(&request.path, 0o755)?;
    let folder = open(&request.path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let (total, free) = space(&folder, &request.path)?;
    let room = (total * u64::from(request.percent) / 100).saturating_sub(total - free);
    let mut files = Files::new(request);
    for round in 0..request.rounds {
        files.fill(room)?;
        if round + 1 < request.rounds {
            // Without write-back, delayed allocation would never give these files blocks.
            sync(&folder, &request.path)?;
            files.thin_out()?;
        }
    }
    sync(&folder, &request.path)?;
    Ok(json!({
        "files": files.kept.len(),
        "bytes": files.bytes,
        "written_bytes": files.written,
        "wall_ns": start.elapsed().as_nanos() as u64,
    }))
}

struct Files<'a> {
    folder: &'a str,
    kept: Vec<(u64, u64)>,
    bytes: u64,
    written: u64,
    key: u64,
    drawn: u64,
    memory: Vec<u8>,
}

impl<'a> Files<'a> {
    fn new(request: &'a Age) -> Self {
        let mut memory = vec![0; LARGEST];
        let content = Content {
            kind: Kind::Random,
            seed: request.seed,
        };
        content.fill(0, 0, &mut memory);
        Files {
            folder: &request.path,
            kept: Vec::new(),
            bytes: 0,
            written: 0,
            key: key(request.seed, 1),
            drawn: 0,
            memory,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.drawn += 1;
        word(self.key, self.drawn) % below
    }

    fn path(&self, number: u64) -> String {
        format!("{}/{number:08}", self.folder)
    }

    fn fill(&mut self, room: u64) -> Result<()> {
        while self.bytes < room {
            let size = (SMALLEST << self.draw(SIZES)).min(room - self.bytes);
            let number = self.drawn;
            let path = self.path(number);
            let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
            let file = open(&path, flags, 0o644)?;
            write_all(&file, &self.memory[..size as usize], &path)?;
            self.kept.push((number, size));
            self.bytes += size;
            self.written += size;
        }
        Ok(())
    }

    fn thin_out(&mut self) -> Result<()> {
        for _ in 0..self.kept.len() as u64 / GOES {
            let chosen = self.draw(self.kept.len() as u64) as usize;
            let (number, size) = self.kept.swap_remove(chosen);
            let path = self.path(number);
            fs::remove_file(&path).doing(|| format!("remove {path}"))?;
            self.bytes -= size;
        }
        Ok(())
    }
}

/// Return the size of a file system and its free space, in bytes.
fn space(folder: &OwnedFd, path: &str) -> Result<(u64, u64)> {
    let facts = rustix::fs::fstatvfs(folder)
        .doing(|| format!("get the free space of the file system of {path}"))?;
    Ok((
        facts.f_blocks * facts.f_frsize,
        facts.f_bfree * facts.f_frsize,
    ))
}

fn sync(folder: &OwnedFd, path: &str) -> Result<()> {
    rustix::fs::syncfs(folder).doing(|| format!("sync the file system of {path}"))?;
    Ok(())
}

/// Overwrite all free blocks of the file system at `path`, through a file that is removed again. A
/// disk has to map previously discarded blocks again, and the store of an image has to allocate
/// them again.
pub fn use_free_space(request: &Path) -> Result<Value> {
    let path = format!("{}/.use-of-free-space", request.path.trim_end_matches('/'));
    let folder = open(&request.path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY | libc::O_NOFOLLOW;
    let text = c_text(&path)?;
    let file = try_open(&text, flags, 0o600)
        .map_err(|errno| Error::errno(format!("make {path}"), errno))?;
    let written = write_until_full(&file, &path);
    rustix::fs::unlink(&text).doing(|| format!("remove {path}"))?;
    drop(file);
    sync(&folder, &request.path)?;
    Ok(json!({ "bytes": written? }))
}

fn write_until_full(file: &OwnedFd, path: &str) -> Result<u64> {
    let mut memory = vec![0; LARGEST];
    let content = Content {
        kind: Kind::Random,
        seed: 0,
    };
    content.fill(0, 0, &mut memory);
    let (mut written, mut size) = (0, memory.len());
    while size >= SMALLEST as usize {
        match rustix::io::write(file, &memory[..size]) {
            Err(Errno::INTR) => {}
            Err(Errno::NOSPC) => size /= 2,
            n => written += n.doing(|| format!("write {path}"))? as u64,
        }
    }
    match rustix::fs::fdatasync(file) {
        Err(Errno::NOSPC) => Ok(written),
        synced => synced
            .map(|()| written)
            .doing(|| format!("fdatasync {path}")),
    }
}

/// Run FITRIM, like fstrim(8): discard the free blocks of the file system mounted at `path`.
pub fn trim(request: &Path) -> Result<Value> {
    let folder = open(&request.path, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let mut range = [0_u64, u64::MAX, 0]; // start, length, minimum length
    let start = Instant::now();
    // SAFETY: we own the array, and it has the layout of `struct fstrim_range`.
    match unsafe { libc::ioctl(folder.as_raw_fd(), FITRIM as _, range.as_mut_ptr()) } {
        -1 if last_errno() == libc::EOPNOTSUPP => Err(Error::unsupported(format!(
            "trim {}: its device has no discard",
            request.path
        ))),
        -1 => Err(Error::last_os(format!("trim {}", request.path))),
        _ => Ok(json!({
            "bytes": range[1],
            "wall_ns": start.elapsed().as_nanos() as u64,
        })),
    }
}
