//! Streams that read the lab's own block device, like hdparm.

use std::os::unix::io::{AsRawFd, OwnedFd};

use super::crew::{Ready, Work};
use super::part::Part;
use super::source::Start;
use super::timed::{BlockExtra, Ended, Reading};
use super::{verify, Outcome, Timer};
use crate::error::{Error, Result};
use crate::jobs::region::Region;
use crate::sys::device::Device;
use crate::sys::loop_device::LoopDevice;

/// A device of the lab: attached or claimed by this probe. Other devices cannot be named.
pub enum LabDevice<'a> {
    Loop(&'a LoopDevice),
    Disk(&'a Device),
}

impl LabDevice<'_> {
    fn open(&self, direct: bool) -> Result<OwnedFd> {
        // The flags that hdparm opens it with.
        let flags = libc::O_NONBLOCK | if direct { libc::O_DIRECT } else { 0 };
        match self {
            LabDevice::Loop(device) => device.reading(flags),
            LabDevice::Disk(device) => device.reading_again(flags),
        }
    }

    fn evict(&self) -> Result<()> {
        match self {
            LabDevice::Loop(device) => device.evict(),
            LabDevice::Disk(device) => device.evict(),
        }
    }

    fn size(&self, opened: &OwnedFd) -> Result<u64> {
        // SAFETY: no pointers are involved.
        let end = unsafe {
            let end = libc::lseek(opened.as_raw_fd(), 0, libc::SEEK_END);
            libc::lseek(opened.as_raw_fd(), 0, libc::SEEK_SET);
            end
        };
        if end < 0 {
            return Err(Error::last_os("get the size of the lab's device"));
        }
        Ok(end as u64)
    }
}

impl Timer<'_> {
    pub fn read_device(&mut self, device: &LabDevice) -> Result<Outcome> {
        let own = self.own;
        let block = own.block_size as u64;
        let opened = device.open(own.direct)?;
        let size = device.size(&opened)?;
        let part = Part::of(own, size)?;
        let blocks = part.blocks;
        part.go_to(&opened)?;
        self.settle();
        if own.evict {
            device.evict()?;
        }
        lead_in(&opened, &part, own.block_size)?;
        let start = Start::of(&opened, part.end, NAME)?;
        let reading = Reading {
            from: opened,
            places: part.places,
            block: own.block_size,
            memory: Region::zeroed(own.block_size)?,
            blocks: Some(blocks),
            limit_ticks: self.limit_ticks(),
            direct: own.direct,
            close_inside: false,
            extra: match own.beside {
                true => BlockExtra::Touch,
                false => BlockExtra::Nothing,
            },
        };
        let ready = vec![Ready::new(Work::Read(reading), NAME)];
        let mut outcome = self.timed(start, || Ok(ready))?;
        if own.volume.is_none() && outcome.done.ended == Ended::Volume {
            outcome.done.ended = Ended::End;
        }
        verify::moved(NAME, &outcome.done, blocks * block)?;
        // Leave no page of the device in the cache, like hdparm.
        device.evict()?;
        Ok(outcome)
    }
}

/// Read the blocks before the timed part, so that it does not start with a seek from where the
/// previous run ended.
fn lead_in(opened: &OwnedFd, part: &Part, block: usize) -> Result<()> {
    let mut memory = Region::zeroed(block)?;
    for at in &part.lead_in {
        // SAFETY: we own the memory, and it has this length.
        let got = unsafe {
            libc::pread(
                opened.as_raw_fd(),
                memory.as_mut_ptr().cast(),
                block,
                *at as i64,
            )
        };
        if got != block as isize {
            let doing = format!("read {block} bytes at {at} of {NAME} before timing starts");
            return Err(match got {
                -1 => Error::last_os(doing),
                _ => Error::verify(format!("{doing}: got {got}")),
            });
        }
    }
    Ok(())
}

const NAME: &str = "the lab's device";
