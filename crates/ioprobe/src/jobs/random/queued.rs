//! The timed part of the `random` job by io_uring: up to `depth` operations in flight. One system
//! call submits up to `batch` of them and waits for as many completions.
//!
//! The clock is read once per call, not once per operation. As far as the program can tell, all
//! that one call submits starts together, and all that has completed when it returns ended
//! together. An operation's latency runs from the clock reading before the call that submits it to
//! the reading after the call that returns its completion.

use io_uring::cqueue::CompletionQueue;
use io_uring::squeue::{Flags, SubmissionQueue};
use io_uring::{opcode, types, EnterFlags, IoUring, Submitter};

use super::layout::Place;
use super::work::{Broken, Outcome, Work};
use crate::clock::Clock;
use crate::jobs::stopwatch::Span;
use crate::prefault::ask_for;

/// Indices of the registered buffers.
const BUFFERS: u16 = 0;
const IMAGE: u16 = 1;

pub struct Queue<'a> {
    submitter: Submitter<'a>,
    submissions: SubmissionQueue<'a>,
    completions: CompletionQueue<'a>,
    /// The features of the ring that are in use.
    pub features: Vec<&'static str>,
    depth: u32,
    batch: u32,
    fixed_files: bool,
    fixed_buffers: bool,
    /// With O_DIRECT the data comes from the device and is in no CPU cache: prefetch the words to
    /// be checked, all at once.
    direct: bool,
    slots: Vec<Slot>,
    /// A stack of slots with no operation in flight; `depth` minus those in flight are valid. The
    /// slot used last is reused first, while its block is in the CPU cache.
    free: Vec<u32>,
    /// Slot and result of each completion of a call.
    ended: Vec<(u32, i32)>,
}

/// After this many waiting calls, try one that does not wait: everything may be in the page cache
/// by now.
const LOOK_AGAIN: u32 = 1024;

/// One operation in flight.
#[derive(Clone, Copy, Default)]
struct Slot {
    from: u64,
    place: Place,
    used: bool,
}

impl<'a> Queue<'a> {
    /// Register the ring, files and buffers. `features` are those that the ring was set up with.
    pub fn new(
        ring: &'a mut IoUring,
        mut features: Vec<&'static str>,
        work: &Work,
        (depth, batch, direct): (u32, u32, bool),
    ) -> Self {
        let (mut submitter, submissions, completions) = ring.split();
        let mut regions = vec![&work.buffers];
        regions.extend(work.image.iter().map(|image| image.region()));
        let buffers: Vec<libc::iovec> = (regions.iter())
            .map(|region| libc::iovec {
                iov_base: region.at(0).cast(),
                iov_len: region.len(),
            })
            .collect();
        if submitter.register_ring_fd().is_ok() {
            features.push("registered-ring");
        }
        // The kernel holds references to the files, so no operation has to look one up.
        let fixed_files = submitter.register_files(&work.descriptors).is_ok();
        if fixed_files {
            features.push("registered-files");
        }
        // SAFETY: the regions are mapped; from here on the kernel holds their pages.
        let fixed_buffers = unsafe { submitter.register_buffers(&buffers) }.is_ok();
        if fixed_buffers {
            features.push("registered-buffers");
        }
        Queue {
            submitter,
            submissions,
            completions,
            features,
            depth,
            batch,
            fixed_files,
            fixed_buffers,
            direct,
            slots: vec![Slot::default(); depth as usize],
            free: (0..depth).rev().collect(),
            ended: Vec::with_capacity(depth as usize),
        }
    }

    /// Return the last read of each buffer.
    pub fn last_reads(&self) -> impl Iterator<Item = (usize, Place)> + '_ {
        (self.slots.iter().enumerate())
            .filter(|(_, slot)| slot.used && !slot.place.write)
            .map(|(n, slot)| (n, slot.place))
    }

    pub fn perform(&mut self, work: &mut Work, clock: &Clock) -> Result<Span, Broken> {
        if work.pace.is_open() {
            self.work_through::<true>(work, clock)
        } else {
            self.work_through::<false>(work, clock)
        }
    }

    fn work_through<const OPEN: bool>(
        &mut self,
        work: &mut Work,
        clock: &Clock,
    ) -> Result<Span, Broken> {
        let mut sequence = work.layout.sequence();
        let start = clock.ticks();
        let end = work.pace.end(start);
        let block = work.layout.block as usize;
        let (depth, batch, most) = (self.depth, self.batch, work.pace.operations);
        let tally = &mut work.tally;
        tally.series.begin(start);
        let mut now = start;
        let mut issued = 0;
        // In flight or about to be; and those in the ring that the kernel has not yet taken.
        let (mut under_way, mut waiting) = (0_u32, 0_u32);
        // Calls left before trying one that does not wait. What is in the page cache is complete
        // when the call returns, and waiting costs time even when there is nothing to wait for.
        let mut waits = 0_u32;
        let mut failed = None;
        loop {
            let mut more = issued < most && now < end && failed.is_none();
            let mut room = batch.min(depth - under_way);
            while more && room > 0 {
                let mut from = now;
                if OPEN {
                    from = work.pace.due(start, issued);
                    more = from < end;
                    if !more || from > now {
                        break;
                    }
                    tally.late.record(now - from);
                }
                let place = sequence.step();
                let number = self.free[(depth - under_way - 1) as usize];
                let slot = &mut self.slots[number as usize];
                slot.from = from;
                slot.place = place;
                slot.used = true;
                let (file, flags) = match self.fixed_files {
                    true => (place.file as i32, Flags::FIXED_FILE),
                    false => (work.descriptors[place.file as usize], Flags::empty()),
                };
                let (file, length) = (types::Fd(file), block as u32);
                let buffer = work.buffers.at(number as usize * block);
                let submission = match (place.write, &work.image) {
                    (true, Some(image)) => {
                        let data = image.at(place.file, place.offset);
                        match self.fixed_buffers {
                            true => opcode::WriteFixed::new(file, data, length, IMAGE)
                                .offset(place.offset)
                                .build(),
                            false => opcode::Write::new(file, data, length)
                                .offset(place.offset)
                                .build(),
                        }
                    }
                    _ => match self.fixed_buffers {
                        true => opcode::ReadFixed::new(file, buffer, length, BUFFERS)
                            .offset(place.offset)
                            .build(),
                        false => opcode::Read::new(file, buffer, length)
                            .offset(place.offset)
                            .build(),
                    },
                };
                let submission = submission.flags(flags).user_data(u64::from(number));
                // SAFETY: buffer and image stay mapped until everything in flight has completed, or
                // are leaked.
                if unsafe { self.submissions.push(&submission) }.is_err() {
                    unreachable!("the ring has room for `depth` operations");
                }
                issued += 1;
                under_way += 1;
                waiting += 1;
                room -= 1;
                more = issued < most;
            }
            if under_way == 0 {
                if !more {
                    break;
                }
                now = clock.ticks(); // nothing is due yet
                continue;
            }
            let wanted = match (more && under_way < depth, OPEN) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => under_way.min(batch),
            };
            let patient = waits > 0 || waiting == 0;
            self.submissions.sync();
            let (least, look) = match patient {
                true => (wanted, EnterFlags::GETEVENTS.bits()),
                false if OPEN => (0, EnterFlags::GETEVENTS.bits()),
                false => (0, 0),
            };
            // SAFETY: no argument of the call is a pointer.
            let taken = unsafe { self.submitter.enter::<()>(waiting, least, look, None) };
            now = clock.ticks();
            tally.calls += 1;
            let errno = match taken {
                Ok(taken) => {
                    waiting -= taken as u32;
                    0
                }
                Err(cause) => cause.raw_os_error().unwrap_or(libc::EIO),
            };
            if ![0, libc::EINTR, libc::EAGAIN, libc::EBUSY].contains(&errno) {
                // Operations may still be in flight that we will never wait for: leave their memory
                // to the kernel.
                work.buffers.leak();
                if let Some(image) = &mut work.image {
                    image.leak();
                }
                return Err(Broken {
                    place: None,
                    outcome: Outcome::Errno(errno),
                });
            }
            self.submissions.sync(); // how many the kernel has taken
            self.completions.sync();
            for completion in &mut self.completions {
                let number = completion.user_data() as u32;
                if self.direct {
                    ask_for(work.buffers.at(number as usize * block));
                }
                self.ended.push((number, completion.result()));
            }
            self.completions.sync();
            let before = under_way;
            for (number, result) in self.ended.drain(..) {
                let slot = &self.slots[number as usize];
                self.free[(depth - under_way) as usize] = number;
                under_way -= 1;
                if result == block as i32 {
                    let data = work.buffers.at(number as usize * block);
                    tally.count(&slot.place, slot.from, now, data);
                } else {
                    failed = Some(broken(slot.place, result));
                }
            }
            if patient {
                waits = waits.saturating_sub(1);
            } else if before - under_way < wanted {
                waits = LOOK_AGAIN;
            }
        }
        match failed {
            Some(broken) => Err(broken),
            None => Ok(Span { start, end: now }),
        }
    }
}

/// Unregisters explicitly. The kernel tears down a closed ring asynchronously and until then holds
/// its registered files, so a file system could not be unmounted. A registered ring is not even
/// closed before this thread ends. Unregistering what was never registered fails harmlessly.
impl Drop for Queue<'_> {
    fn drop(&mut self) {
        let _ = self.submitter.unregister_files();
        let _ = self.submitter.unregister_buffers();
        let _ = self.submitter.unregister_ring_fd();
    }
}

#[cold]
fn broken(place: Place, result: i32) -> Broken {
    Broken {
        place: Some(place),
        outcome: if result < 0 {
            Outcome::Errno(-result)
        } else {
            Outcome::Short(result as u64)
        },
    }
}
