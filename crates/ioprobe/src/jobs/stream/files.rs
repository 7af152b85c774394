//! Streams of files: opening them, computing their expected sizes, and verifying them afterwards.

use std::os::unix::io::{AsRawFd, OwnedFd};

use super::copying::Copying;
use super::crew::{Ready, Work};
use super::data::{Data, Prepared};
use super::source::{open_dd_device, Start, Target};
use super::timed::{BlockExtra, Reading, Writing};
use super::{verify, Outcome, Timer};
use crate::error::{Error, Result};
use crate::jobs::region::Region;
use crate::protocol::{StreamJob, StreamOperation as Operation};

/// Return the number of files that the streams work on.
pub fn needed(own: &StreamJob) -> usize {
    let apart = if own.shared { 1 } else { own.streams };
    match own.operation {
        Operation::Copy => apart + own.streams,
        _ => apart,
    }
}

/// The part of a file that one of several writers writes.
struct Part {
    place: usize,
    from: u64,
    end: u64,
}

impl Timer<'_> {
    pub fn read_files(&mut self, target: &Target) -> Result<Outcome> {
        let own = self.own;
        let volumes = self.volumes_to_read(target, target.files.len())?;
        let start = self.prepare(target)?;
        let limit_ticks = self.limit_ticks();
        let outcome = self.timed(start, || {
            let stream = |number: usize| {
                let place = if own.shared { 0 } else { number };
                let reading = Reading {
                    from: target.open_to_read(place, own)?,
                    places: None,
                    block: own.block_size,
                    memory: Region::zeroed(own.block_size)?,
                    blocks: own.volume.map(|volume| blocks_of(volume, own)),
                    limit_ticks,
                    direct: own.direct,
                    close_inside: true,
                    extra: block_extra(own, "/dev/null", libc::O_WRONLY)?,
                };
                Ok(Ready::new(Work::Read(reading), &target.files[place].path))
            };
            (0..own.streams).map(stream).collect()
        })?;
        let all = match own.shared {
            true => volumes[0] * own.streams as u64,
            false => volumes.iter().sum(),
        };
        verify::moved(&target.files[0].path, &outcome.done, all)?;
        Ok(outcome)
    }

    pub fn write_files(&mut self, mut target: Target) -> Result<Outcome> {
        let own = self.own;
        let truncate = own.truncate && own.operation == Operation::Write;
        let places = target.files.len();
        let before: Vec<u64> = (0..places).map(|place| target.size(place)).collect();
        let volumes: Vec<u64> = (before.iter())
            .map(|size| own.volume.unwrap_or(*size))
            .collect();
        if volumes.contains(&0) {
            return Err(Error::bad(
                "request stream: volume: expected at least 1 byte to write, found 0",
            ));
        }
        if own.operation == Operation::Rewrite {
            for (place, volume) in volumes.iter().enumerate() {
                target.fill_up(place, *volume)?;
            }
        }
        let seed = own.seed.unwrap_or(target.set.content.seed);
        let data: Vec<Data> = (target.files.iter())
            .map(|file| Data::new(own.data, seed, file.index))
            .collect();
        let parts = parts(&volumes, own);
        let prepared: Vec<Prepared> = (parts.iter())
            .map(|part| {
                let block = (own.block_size as u64).min(part.end - part.from) as usize;
                Prepared::new(data[part.place], block, part.end)
            })
            .collect::<Result<_>>()?;
        let start = self.prepare(&target)?;
        let done = self.timed(start, || {
            let stream = |(number, prepared): (usize, Prepared)| {
                let Part { place, from, end } = parts[number];
                // Only the writer at offset 0 truncates a shared file.
                let to = target.open_to_write(place, own, truncate && from == 0)?;
                stand_at(&to, from, &target.files[place].path)?;
                let writing = Writing {
                    to,
                    block: own.block_size,
                    prepared,
                    from,
                    end,
                    direct: own.direct,
                    flush: own.flush,
                    extra: block_extra(own, "/dev/zero", libc::O_RDONLY)?,
                };
                Ok(Ready::new(Work::Write(writing), &target.files[place].path))
            };
            prepared.into_iter().enumerate().map(stream).collect()
        });
        target.follow();
        let outcome = done?;
        verify::moved(&target.files[0].path, &outcome.done, volumes.iter().sum())?;
        for (place, volume) in volumes.iter().enumerate() {
            let size = match truncate {
                true => *volume,
                false => before[place].max(*volume),
            };
            let file = &target.files[place].file;
            verify::written(file, &data[place], *volume, size, own.direct)?;
        }
        Ok(outcome)
    }

    /// Copy files: the first ones of the selection are the sources, the others the destinations.
    pub fn copy_files(&mut self, mut target: Target) -> Result<Outcome> {
        let own = self.own;
        let sources = target.files.len() - own.streams;
        let volumes = self.volumes_to_read(&target, sources)?;
        let before: Vec<u64> = (sources..target.files.len())
            .map(|n| target.size(n))
            .collect();
        let start = self.prepare(&target)?;
        let source_of = |number: usize| if own.shared { 0 } else { number };
        let done = self.timed(start, || {
            let stream = |number: usize| {
                let (from, to) = (source_of(number), sources + number);
                let copying = Copying {
                    from: target.open_to_read(from, own)?,
                    to: target.open_to_write(to, own, own.truncate)?,
                    block: own.block_size,
                    memory: Region::zeroed(own.block_size)?,
                    blocks: own.volume.map(|volume| blocks_of(volume, own)),
                    direct: own.direct,
                    with: own.copy_with,
                    flush: own.flush,
                };
                Ok(Ready::new(Work::Copy(copying), &target.files[to].path))
            };
            (0..own.streams).map(stream).collect()
        });
        target.follow();
        let outcome = done?;
        let all = (0..own.streams).map(|number| volumes[source_of(number)]);
        verify::moved(&target.files[0].path, &outcome.done, all.sum())?;
        for (number, before) in before.iter().enumerate() {
            let volume = volumes[source_of(number)];
            let size = match own.truncate {
                true => volume,
                false => volume.max(*before),
            };
            let source = &target.files[source_of(number)].file;
            let copy = &target.files[sources + number].file;
            verify::copied(source, copy, volume, size, own.direct)?;
        }
        Ok(outcome)
    }

    /// Return the number of bytes to read from each of the first files.
    fn volumes_to_read(&self, target: &Target, count: usize) -> Result<Vec<u64>> {
        let block = self.own.block_size as u64;
        let volume_of = |place: usize| {
            let size = target.size(place);
            match self.own.volume {
                Some(volume) if volume > size || (volume % block != 0 && volume != size) => {
                    Err(Error::bad(format!(
                        "request stream: volume: expected a multiple of the block size ({block} bytes), or all {size} bytes of {}, found {volume}",
                        target.files[place].path
                    )))
                }
                given => Ok(given.unwrap_or(size)),
            }
        };
        (0..count).map(volume_of).collect()
    }

    fn prepare(&self, target: &Target) -> Result<Start> {
        self.settle();
        if self.own.evict {
            target.evict()?;
        }
        target.start()
    }
}

/// Assign the writing: one stream per file, or parts of one file, in whole blocks, to several
/// streams.
fn parts(volumes: &[u64], own: &StreamJob) -> Vec<Part> {
    if !own.shared || own.streams == 1 {
        let whole = |(place, volume): (usize, &u64)| Part {
            place,
            from: 0,
            end: *volume,
        };
        return volumes.iter().enumerate().map(whole).collect();
    }
    let (block, volume) = (own.block_size as u64, volumes[0]);
    let blocks = volume.div_ceil(block);
    let each = blocks.div_ceil(own.streams as u64) * block;
    let starts = (0..own.streams as u64).map(|number| number * each);
    starts
        .filter(|from| *from < volume)
        .map(|from| Part {
            place: 0,
            from,
            end: volume.min(from + each),
        })
        .collect()
}

fn blocks_of(volume: u64, own: &StreamJob) -> u64 {
    let block = own.block_size as u64;
    volume.div_ceil(block)
}

fn block_extra(own: &StreamJob, path: &str, flags: libc::c_int) -> Result<BlockExtra> {
    match own.beside {
        true => Ok(BlockExtra::Copy(open_dd_device(path, flags)?)),
        false => Ok(BlockExtra::Nothing),
    }
}

fn stand_at(file: &OwnedFd, offset: u64, path: &str) -> Result<()> {
    if offset == 0 {
        return Ok(());
    }
    // SAFETY: no pointers are involved.
    match unsafe { libc::lseek(file.as_raw_fd(), offset as i64, libc::SEEK_SET) } {
        -1 => Err(Error::last_os(format!("seek in {path}"))),
        _ => Ok(()),
    }
}
