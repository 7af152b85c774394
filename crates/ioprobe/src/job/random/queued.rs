//! The timed part of the `random` job by io_uring: up to `depth` operations under way, `batch` of them handed over with one
//! system call, which waits for as many.
//!
//! The clock is read once a call and not once an operation: all that one call hands over begins together, and all that is
//! there when it returns has ended together, as far as the program can know. An operation's latency goes from the reading
//! before the call that hands it over to the reading after the call that brings it back.

use super::layout::Place;
use super::work::{Broken, Outcome, Work};
use crate::ahead::ask_for;
use crate::clock::Clock;
use crate::error;
use crate::job::stopwatch::Span;
use crate::uring::{Cqe, Ring, Sqe, FIXED_FILE, READ, READ_FIXED, WRITE, WRITE_FIXED};

/// Numbers of the registered buffers.
const BUFFERS: u16 = 0;
const IMAGE: u16 = 1;

pub struct Queue {
    pub ring: Ring,
    depth: u32,
    batch: u32,
    fixed_files: bool,
    fixed_buffers: bool,
    /// The data comes from the device, into no cache: the words to be looked at are asked for all at once.
    direct: bool,
    slots: Vec<Slot>,
    /// Slots that nothing is under way in, up to `depth` less those that are; the one used last is the first to be used
    /// again, while its block is in the cache.
    free: Vec<u32>,
}

/// After so many calls that waited, one is made that does not: perhaps all is in the cache by now.
const LOOK_AGAIN: u32 = 1024;

/// One operation under way.
#[derive(Clone, Copy, Default)]
struct Slot {
    from: u64,
    place: Place,
    used: bool,
}

impl Queue {
    pub fn new(work: &Work, depth: u32, batch: u32, direct: bool) -> error::Result<Self> {
        let mut ring = Ring::new(depth)?;
        let mut regions = vec![&work.buffers];
        regions.extend(work.image.iter().map(|image| image.region()));
        let buffers: Vec<libc::iovec> = (regions.iter())
            .map(|region| libc::iovec {
                iov_base: region.at(0).cast(),
                iov_len: region.len(),
            })
            .collect();
        Ok(Queue {
            fixed_files: ring.register_files(&work.descriptors),
            fixed_buffers: ring.register_buffers(&buffers),
            ring,
            depth,
            batch,
            direct,
            slots: vec![Slot::default(); depth as usize],
            free: (0..depth).rev().collect(),
        })
    }

    /// The last read of each buffer.
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
        // Handed over or about to be; of those, in the ring and not yet taken by the kernel.
        let (mut under_way, mut waiting) = (0_u32, 0_u32);
        // Calls until one is tried that does not wait: what is in the page cache is done when the call returns, and waiting
        // costs even where there is nothing to wait for.
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
                let mut submission = Sqe {
                    opcode: if self.fixed_buffers { READ_FIXED } else { READ },
                    offset: place.offset,
                    address: work.buffers.at(number as usize * block) as u64,
                    length: block as u32,
                    user_data: u64::from(number),
                    buffer: BUFFERS,
                    ..Sqe::default()
                };
                if self.fixed_files {
                    submission.flags = FIXED_FILE;
                    submission.file = place.file as i32;
                } else {
                    submission.file = work.descriptors[place.file as usize];
                }
                if let (true, Some(image)) = (place.write, &work.image) {
                    submission.opcode = if self.fixed_buffers {
                        WRITE_FIXED
                    } else {
                        WRITE
                    };
                    submission.address = image.at(place.file, place.offset) as u64;
                    submission.buffer = IMAGE;
                }
                self.ring.push(submission);
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
            let taken = self
                .ring
                .enter(waiting, if patient { wanted } else { 0 }, patient || OPEN);
            now = clock.ticks();
            tally.calls += 1;
            if taken >= 0 {
                waiting -= taken as u32;
            } else if ![libc::EINTR, libc::EAGAIN, libc::EBUSY].contains(&-taken) {
                // Operations may be under way that will never be waited for: their memory is the kernel's now.
                work.buffers.leak();
                if let Some(image) = &mut work.image {
                    image.leak();
                }
                return Err(Broken {
                    place: None,
                    outcome: Outcome::Errno(-taken),
                });
            }
            let (slots, free, buffers) = (&self.slots, &mut self.free, &work.buffers);
            if self.direct {
                let data = |completion: &Cqe| buffers.at(completion.user_data as usize * block);
                self.ring.peek(|completion| ask_for(data(completion)));
            }
            let before = under_way;
            self.ring.reap(|completion: &Cqe| {
                let number = completion.user_data as usize;
                let slot = &slots[number];
                free[(depth - under_way) as usize] = number as u32;
                under_way -= 1;
                if completion.result == block as i32 {
                    tally.count(&slot.place, slot.from, now, buffers.at(number * block));
                } else {
                    failed = Some(broken(slot.place, completion.result));
                }
            });
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
