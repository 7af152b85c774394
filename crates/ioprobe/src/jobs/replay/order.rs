//! The order of operations across threads: found when a trace is read, obeyed when it is replayed.
//!
//! An operation waits for those of other threads that had ended before it started in the recording
//! and touch the same file or handle, if one of the two changes it: writes, truncates, creates,
//! renames or removes a file, opens or closes a handle. Of those of one thread only the last is
//! kept. A thread's first operation waits for its start, and a wait for a thread for what that
//! thread had done.
//!
//! # No deadlock
//!
//! Number all operations by the time at which they started, ties by their place in the trace. A
//! thread performs its own in the order of their numbers. An operation waits only for those with
//! lower numbers: `arrange` goes through the operations in the order of their numbers, and counts
//! only operations that it has already been through. So of all operations that are not done, the
//! one with the lowest number waits for nothing: its thread has done all before it, and so have the
//! threads that it waits for. It can run, and so the replay ends.
//!
//! A thread with operations in flight (io_uring) collects all of them before it waits for another
//! thread, so that nobody waits for one that is complete but not yet collected. "The first n
//! operations of a thread are done" then means that none of them is in flight.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::Thread;

use iotrace::Call;

use super::plan::{bit, touches, Plan, Step};
use crate::error::{Error, Result};

/// Before step `at`, wait until a thread has done this many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitFor {
    pub at: u32,
    pub thread: u16,
    pub count: u32,
}

/// What a trace says, in the order in which the operations ended.
pub struct Recorded<'a> {
    pub steps: Vec<Step>,
    pub of_thread: Vec<u16>,
    /// Of each thread.
    pub processes: &'a [u32],
    pub handle_files: &'a [u32],
}

/// An operation that has ended, as a predecessor of others.
#[derive(Clone, Copy)]
struct Before {
    thread: u16,
    count: u32,
    end_ns: u64,
}

/// The operations on a file or handle that a later one may have to wait for.
#[derive(Default)]
struct Last {
    changes: Vec<Before>,
    uses: Vec<Before>,
}

/// Owners of a file or handle: a thread, none yet, or several.
const NOBODY: u16 = u16::MAX;
const SEVERAL: u16 = u16::MAX - 1;
/// Steps of the search. Real traces take a few for each operation.
const MOST_WORK: u64 = 4_000_000_000;
const MOST_WAITS: u64 = 20_000_000;

/// Distribute the steps over the threads, and find what each waits for.
pub fn arrange(recorded: Recorded, plan: &mut Plan, name: &str) -> Result<()> {
    let Recorded {
        steps, of_thread, ..
    } = &recorded;
    let count = plan.threads.len();
    let mut order: Vec<u32> = (0..steps.len() as u32).collect();
    order.sort_unstable_by_key(|number| (steps[*number as usize].start_ns, *number));
    let mut sizes = vec![0; count];
    of_thread.iter().for_each(|t| sizes[usize::from(*t)] += 1);
    for (thread, size) in plan.threads.iter_mut().zip(sizes) {
        thread.steps.reserve_exact(size);
    }
    let mut sweep = Sweep::new(&recorded, plan, name);
    let mut ended = 0;
    for number in order {
        let start_ns = steps[number as usize].start_ns;
        while ended < steps.len() && sweep.counts[ended] > 0 && steps[ended].end_ns() <= start_ns {
            sweep.end(ended, plan)?;
            ended += 1;
        }
        sweep.start(number as usize, plan)?;
    }
    plan.facts.waits = sweep.waits;
    Ok(())
}

struct Sweep<'a> {
    recorded: &'a Recorded<'a>,
    name: &'a str,
    /// By step: its number within its thread, from 1; 0 if not reached yet.
    counts: Vec<u32>,
    /// What several threads touch and one of them changes. Nothing else has an order.
    contended: HashMap<u32, Last>,
    /// By pair of threads: what the first one already knows to be done by the second.
    known: HashMap<(u16, u16), u32>,
    /// By thread: how many of its steps have ended.
    ended: Vec<u32>,
    /// By thread: the start of it that was seen, and when that ended.
    born: Vec<Option<(Before, u64)>>,
    /// By thread: the ends of its operations in flight, the next one on top.
    flying: Vec<BinaryHeap<Reverse<u64>>>,
    waits: u64,
    work: u64,
}

impl<'a> Sweep<'a> {
    fn new(recorded: &'a Recorded<'a>, plan: &Plan, name: &'a str) -> Self {
        let objects = plan.files.len() + recorded.handle_files.len();
        let mut owners = vec![NOBODY; objects];
        let mut changed = vec![false; objects];
        for (step, thread) in recorded.steps.iter().zip(&recorded.of_thread) {
            touches(
                step,
                &plan.files,
                recorded.handle_files,
                |object, changes| {
                    let owner = &mut owners[object as usize];
                    *owner = match *owner {
                        NOBODY => *thread,
                        one if one == *thread => one,
                        _ => SEVERAL,
                    };
                    changed[object as usize] |= changes;
                },
            );
        }
        let contended = (owners.iter().zip(&changed).enumerate())
            .filter(|(_, (owner, changed))| **owner == SEVERAL && **changed)
            .map(|(object, _)| (object as u32, Last::default()))
            .collect();
        let threads = plan.threads.len();
        Sweep {
            recorded,
            name,
            counts: vec![0; recorded.steps.len()],
            contended,
            known: HashMap::new(),
            ended: vec![0; threads],
            born: vec![None; threads],
            flying: vec![BinaryHeap::new(); threads],
            waits: 0,
            work: 0,
        }
    }

    /// Pass the start of an operation: give it its place, and find what it waits for.
    fn start(&mut self, number: usize, plan: &mut Plan) -> Result<()> {
        let step = self.recorded.steps[number];
        let thread = self.recorded.of_thread[number];
        let at = plan.threads[usize::from(thread)].steps.len() as u32;
        let mut wanted: Vec<(u16, u32)> = Vec::new();
        if at == 0 {
            if let Some((before, born_ns)) = self.born[usize::from(thread)] {
                wanted.push((before.thread, before.count));
                plan.threads[usize::from(thread)].born_ns = born_ns.min(step.start_ns);
            }
        }
        self.counts[number] = at + 1;
        if !self.contended.is_empty() {
            let (contended, work) = (&self.contended, &mut self.work);
            let files = self.recorded.handle_files;
            touches(&step, &plan.files, files, |object, changes| {
                let Some(last) = contended.get(&object) else {
                    return;
                };
                let uses = if changes { &last.uses[..] } else { &[] };
                *work += (last.changes.len() + uses.len()) as u64;
                for before in last.changes.iter().chain(uses) {
                    if before.thread != thread {
                        wanted.push((before.thread, before.count));
                    }
                }
            });
        }
        match step.call {
            Call::Start if !step.is(bit::LEFT_OUT) => {
                let end_ns = step.end_ns();
                let before = Before {
                    thread,
                    count: at + 1,
                    end_ns,
                };
                self.born[step.second as usize].get_or_insert((before, end_ns));
            }
            Call::Wait if !step.is(bit::LEFT_OUT) => {
                let processes = self.recorded.processes;
                let (own, its) = (
                    processes[usize::from(thread)],
                    processes[step.second as usize],
                );
                self.work += processes.len() as u64;
                for (other, process) in processes.iter().enumerate() {
                    let awaited = other == step.second as usize || (*process == its && its != own);
                    if awaited && other != usize::from(thread) && self.ended[other] > 0 {
                        wanted.push((other as u16, self.ended[other]));
                    }
                }
            }
            _ => {}
        }
        for (other, count) in wanted {
            self.wait(at, thread, other, count, plan);
        }
        if step.is(bit::URING) {
            let flying = &mut self.flying[usize::from(thread)];
            while flying.peek().is_some_and(|end| end.0 <= step.start_ns) {
                flying.pop();
            }
            flying.push(Reverse(step.end_ns()));
            let most = &mut plan.threads[usize::from(thread)].in_flight;
            *most = (*most).max(flying.len() as u32);
        }
        plan.threads[usize::from(thread)].steps.push(step);
        self.check()
    }

    fn wait(&mut self, at: u32, thread: u16, other: u16, count: u32, plan: &mut Plan) {
        let (mine, its) = (usize::from(thread), usize::from(other));
        let known = self.known.entry((thread, other)).or_default();
        if *known >= count {
            return;
        }
        *known = count;
        plan.threads[its].watched = true;
        let waits = &mut plan.threads[mine].waits;
        // A later operation of the same thread replaces an earlier one.
        let mut here = waits.iter_mut().rev().take_while(|wait| wait.at == at);
        if let Some(same) = here.find(|wait| wait.thread == other) {
            same.count = count;
            return;
        }
        waits.push(WaitFor {
            at,
            thread: other,
            count,
        });
        self.waits += 1;
    }

    /// Pass the end of an operation: from here on, others may have to wait for it.
    fn end(&mut self, number: usize, plan: &Plan) -> Result<()> {
        let step = self.recorded.steps[number];
        let (thread, count) = (self.recorded.of_thread[number], self.counts[number]);
        let ended = &mut self.ended[usize::from(thread)];
        *ended = (*ended).max(count);
        if self.contended.is_empty() {
            return Ok(());
        }
        let (contended, work) = (&mut self.contended, &mut self.work);
        let before = Before {
            thread,
            count,
            end_ns: step.end_ns(),
        };
        let files = self.recorded.handle_files;
        touches(&step, &plan.files, files, |object, changes| {
            let Some(last) = contended.get_mut(&object) else {
                return;
            };
            *work += (last.changes.len() + last.uses.len()) as u64;
            if changes {
                // It has waited for these itself: waiting for it is waiting for them too.
                let open = |other: &Before| other.end_ns > step.start_ns;
                last.uses.retain(open);
                last.changes
                    .retain(|other| open(other) && other.thread != thread);
                last.changes.push(before);
            } else {
                last.uses.retain(|other| other.thread != thread);
                last.uses.push(before);
            }
        });
        self.check()
    }

    fn check(&self) -> Result<()> {
        let (what, found, most) = match self.work > MOST_WORK {
            true => ("comparisons", self.work, MOST_WORK),
            false => ("waits", self.waits, MOST_WAITS),
        };
        match found > most {
            true => Err(Error::unsupported(format!(
                "read the trace {}: the order of its threads takes more than {most} {what}; record a shorter time",
                self.name
            ))),
            false => Ok(()),
        }
    }
}

/// How many steps each thread has done, and who waits for it.
pub struct Progress {
    lanes: Vec<Lane>,
}

/// A thread's own cache lines, so that threads that do not wait for each other do not share any.
#[repr(align(128))]
struct Lane {
    done: AtomicU32,
    /// The least that anybody waits for.
    least: AtomicU32,
    waiting: Mutex<Vec<(u32, Thread)>>,
}

/// How often to look before sleeping: some microseconds.
const SPINS: u32 = 400;
/// Nobody waits.
const NOTHING: u32 = u32::MAX;

impl Progress {
    pub fn of(threads: usize) -> Self {
        let lane = |_| Lane {
            done: AtomicU32::new(0),
            least: AtomicU32::new(NOTHING),
            waiting: Mutex::new(Vec::new()),
        };
        Progress {
            lanes: (0..threads).map(lane).collect(),
        }
    }

    /// Say that a thread has done its first `count` steps.
    #[inline(always)]
    pub fn publish(&self, thread: usize, count: u32) {
        let lane = &self.lanes[thread];
        // Both this store and load, and those in `wait`, are sequentially consistent: either the
        // waiting thread sees the new count, or we see that it waits.
        lane.done.store(count, Ordering::SeqCst);
        if lane.least.load(Ordering::SeqCst) <= count {
            lane.wake(count);
        }
    }

    #[inline(always)]
    pub fn is_done(&self, thread: usize, count: u32) -> bool {
        self.lanes[thread].done.load(Ordering::SeqCst) >= count
    }

    /// Wait until a thread has done its first `count` steps.
    pub fn wait(&self, thread: usize, count: u32) {
        for _ in 0..SPINS {
            if self.is_done(thread, count) {
                return;
            }
            std::hint::spin_loop();
        }
        let lane = &self.lanes[thread];
        {
            let mut waiting = lane.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push((count, std::thread::current()));
            lane.least.fetch_min(count, Ordering::SeqCst);
        }
        while !self.is_done(thread, count) {
            std::thread::park();
        }
    }
}

impl Lane {
    #[cold]
    fn wake(&self, count: u32) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut least = NOTHING;
        waiting.retain(|(wanted, thread)| {
            if *wanted <= count {
                thread.unpark();
                return false;
            }
            least = least.min(*wanted);
            true
        });
        self.least.store(least, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_misses_a_step() {
        let progress = Progress::of(2);
        const STEPS: u32 = 20_000;
        std::thread::scope(|scope| {
            for me in 0..2_usize {
                let progress = &progress;
                scope.spawn(move || {
                    for step in 1..=STEPS {
                        // In turns: each step of the one after the same step of the other.
                        if me == 1 {
                            progress.wait(0, step);
                        } else if step > 1 {
                            progress.wait(1, step - 1);
                        }
                        progress.publish(me, step);
                    }
                });
            }
        });
        assert!(progress.is_done(0, STEPS) && progress.is_done(1, STEPS));
    }

    #[test]
    fn many_can_wait_for_one() {
        let progress = Progress::of(1);
        std::thread::scope(|scope| {
            for wanted in 1..=50 {
                let progress = &progress;
                scope.spawn(move || progress.wait(0, wanted));
            }
            for count in 1..=50 {
                std::thread::sleep(std::time::Duration::from_micros(200));
                progress.publish(0, count);
            }
        });
    }

    #[test]
    fn no_thread_has_the_number_that_stands_for_none() {
        assert!(
            super::super::plan::NONE > iotrace::MAX_THREADS
                && u32::from(SEVERAL) > iotrace::MAX_THREADS
        );
    }
}
