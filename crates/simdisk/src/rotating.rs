//! A rotating disk: one arm, a queue, memory for read-ahead and, optionally, a write cache.
//!
//! When the arm becomes free, it chooses its next work among what has arrived by then. While idle
//! after a read it reads ahead, so that a sequential reader does not wait for another turn; and it
//! writes out the write cache.

use std::collections::VecDeque;

use super::dirty::{Dirty, Extent};
use super::geometry::Geometry;
use super::{Account, Due, Kind, Mechanism, QueueOrder, Request, NS};

/// Maximum number of bytes destaged from the cache at once, so that a read arriving meanwhile does
/// not wait for long.
const DESTAGE_BYTES: u64 = 1 << 20;
/// A request that has waited this long is served next, wherever it is.
const OVERDUE_NS: f64 = 5e8;

/// Times in nanoseconds, rates in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub size: u64,
    pub overhead: f64,
    /// Rate of the interface between disk and machine.
    pub interface: f64,
    /// How far it reads ahead, and how much of the latest reads it keeps.
    pub ahead: u64,
    /// Size of the write cache; 0: none.
    pub cache: u64,
    /// The number of requests among which it chooses.
    pub depth: usize,
    pub order: QueueOrder,
}

pub struct Rotating {
    geometry: Geometry,
    settings: Settings,
    /// In order of arrival.
    queue: VecDeque<Request>,
    /// Writes for which the cache has no room.
    outside: VecDeque<Request>,
    dirty: Dirty,
    flushes: Vec<(Request, u64)>,
    arm: Option<Work>,
    free_at: u64,
    head: u64,
    memory: Option<Memory>,
    wire_free: f64,
    writes: u64,
    wrote_last: bool,
    done: Vec<Due>,
    account: Account,
}

/// The disk's read buffer, filled by read-ahead while idle. It holds data from `low`; reading
/// passed `base` at `base_at` and goes on up to `limit`.
#[derive(Clone, Copy, Debug)]
struct Memory {
    low: u64,
    base: u64,
    base_at: u64,
    limit: u64,
}

impl Memory {
    /// Return how far the disk has read by this time, and whether it had to stop at the limit
    /// before.
    fn frontier(&self, geometry: &Geometry, at: f64) -> (u64, bool) {
        let passed = geometry.passed_in(self.base as f64, at - self.base_at as f64);
        let stopped =
            geometry.pass_ns(self.base as f64, self.limit as f64) < at - self.base_at as f64 - 1.0;
        // Rounded to the nearest byte: what has just passed must not be waited for again.
        let frontier = (passed + 0.5) as u64;
        (frontier.clamp(self.base, self.limit), stopped)
    }
}

enum Work {
    Serve(Request, u64),
    Destage(Extent, u64),
}

impl Work {
    fn end(&self) -> u64 {
        match self {
            Work::Serve(_, end) | Work::Destage(_, end) => *end,
        }
    }
}

impl Mechanism for Rotating {
    fn submit(&mut self, request: Request) {
        match request.kind {
            Kind::Write if self.settings.cache > 0 => {
                self.outside.push_back(request);
                self.let_in(self.ready(&request));
            }
            Kind::Read | Kind::Write => self.queue.push_back(request),
            Kind::Flush => {
                self.flushes.push((request, self.writes));
                self.answer_flushes(self.ready(&request) as u64);
            }
            Kind::Trim => self.done.push(request.due(self.ready(&request) as u64)),
        }
    }

    fn advance(&mut self, now: u64, into: &mut Vec<Due>) {
        loop {
            match self.arm.take() {
                Some(work) if work.end() > now => {
                    self.arm = Some(work);
                    break;
                }
                Some(work) => self.finish(work),
                None => {}
            }
            if !self.begin() {
                break;
            }
        }
        let first = into.len();
        self.done.retain(|due| {
            if due.at <= now {
                into.push(*due);
            }
            due.at > now
        });
        into[first..].sort_by_key(|due| due.at);
    }

    fn next_at(&self) -> Option<u64> {
        let answer = self.done.iter().map(|due| due.at).min();
        let arm = self.arm.as_ref().map(Work::end);
        answer.into_iter().chain(arm).min()
    }

    fn trims(&self) -> bool {
        false
    }

    fn account(&mut self) -> &mut Account {
        &mut self.account
    }
}

impl Rotating {
    pub fn new(geometry: Geometry, settings: Settings) -> Self {
        Rotating {
            geometry,
            settings,
            queue: VecDeque::new(),
            outside: VecDeque::new(),
            dirty: Dirty::default(),
            flushes: Vec::new(),
            arm: None,
            free_at: 0,
            head: 0,
            memory: None,
            wire_free: 0.0,
            writes: 0,
            wrote_last: false,
            done: Vec::new(),
            account: Account::default(),
        }
    }

    fn ready(&self, request: &Request) -> f64 {
        request.arrival as f64 + self.settings.overhead
    }

    fn finish(&mut self, work: Work) {
        self.free_at = work.end();
        match work {
            Work::Serve(request, end) => {
                self.head = request.offset + request.length;
                self.memory = (request.kind == Kind::Read).then(|| self.reading_on(&request, end));
                self.done.push(request.due(end));
            }
            Work::Destage(extent, end) => {
                self.head = extent.offset + extent.length;
                self.memory = None;
                self.let_in(end as f64);
                self.answer_flushes(end);
            }
        }
    }

    /// Return the read buffer after a read from the platter.
    fn reading_on(&self, request: &Request, end: u64) -> Memory {
        let base = request.offset + request.length;
        Memory {
            low: base.saturating_sub(self.settings.ahead).max(request.offset),
            base,
            base_at: end,
            limit: (base + self.settings.ahead).min(self.settings.size),
        }
    }

    /// Start the arm on its next work. Returns false if there is nothing to do or it is busy.
    fn begin(&mut self) -> bool {
        if self.arm.is_some() {
            return false;
        }
        let pressed = !self.flushes.is_empty()
            || !self.outside.is_empty()
            || self.dirty.bytes() > self.settings.cache / 4 * 3;
        let destage_first = pressed && !self.wrote_last;
        if !self.dirty.is_empty() && (self.queue.is_empty() || destage_first) {
            self.wrote_last = true;
            return self.destage();
        }
        self.wrote_last = false;
        match self.choose() {
            Some(place) => self.serve(place),
            None => false,
        }
    }

    fn choose(&self) -> Option<usize> {
        let first = self.queue.front()?;
        let free = (self.free_at as f64).max(self.ready(first));
        if free - first.arrival as f64 > OVERDUE_NS {
            return Some(0);
        }
        let known = self
            .queue
            .iter()
            .take(self.settings.depth)
            .take_while(|request| self.ready(request) <= free)
            .enumerate();
        let best = match self.settings.order {
            QueueOrder::Arrival => return Some(0),
            QueueOrder::Elevator => {
                known.min_by_key(|(_, request)| (request.offset < self.head, request.offset))
            }
            QueueOrder::Nearest => known.min_by(|(_, a), (_, b)| {
                let cost = |request: &Request| self.positioning(request.offset, free).0;
                cost(a).total_cmp(&cost(b))
            }),
        };
        best.map(|(place, _)| place)
    }

    /// Return the nanoseconds until the head reads or writes this offset, starting at `at`, and how
    /// many of them are seek time.
    fn positioning(&self, offset: u64, at: f64) -> (f64, f64) {
        let head = match &self.memory {
            Some(memory) => memory.frontier(&self.geometry, at).0,
            None => self.head,
        };
        let seek = self.geometry.seek_ns(head as f64, offset as f64);
        (seek + self.geometry.wait_ns(offset as f64, at + seek), seek)
    }

    fn serve(&mut self, place: usize) -> bool {
        let request = match self.queue.remove(place) {
            Some(request) => request,
            None => return false,
        };
        let start = (self.free_at as f64).max(self.ready(&request));
        let end = match (request.kind, self.memory) {
            (Kind::Read, Some(memory)) => {
                let (frontier, stopped) = memory.frontier(&self.geometry, start);
                if (memory.low..=frontier).contains(&request.offset) {
                    return self.serve_from_memory(request, start, memory, frontier, stopped);
                }
                self.work(request.offset, request.length, start)
            }
            _ => self.work(request.offset, request.length, start),
        };
        self.arm = Some(Work::Serve(request, end));
        true
    }

    /// Serve a read that starts in the read buffer: what is there is transferred over the
    /// interface, the rest is read as the disk rotates on.
    fn serve_from_memory(
        &mut self,
        request: Request,
        start: f64,
        memory: Memory,
        frontier: u64,
        stopped: bool,
    ) -> bool {
        let end = request.offset + request.length;
        let by_wire =
            start.max(self.wire_free) + request.length as f64 / self.settings.interface * NS;
        let limit = (end + self.settings.ahead)
            .min(self.settings.size)
            .max(memory.limit);
        let left = frontier.saturating_sub(end);
        // When the buffer is full, reading stops, and resumes when half of it has been consumed.
        if end <= frontier && (!stopped || left > self.settings.ahead / 2) {
            let limit = if stopped { memory.limit } else { limit };
            self.wire_free = by_wire;
            self.account.read_hits += 1;
            self.memory = Some(Memory { limit, ..memory });
            self.done.push(request.due(by_wire.ceil() as u64));
            return true;
        }
        let (mut base, mut base_at) = (memory.base as f64, memory.base_at as f64);
        if stopped {
            // Reading had stopped at the end of the buffer, and has to wait for its turn again.
            base = frontier as f64;
            let wait = self.geometry.wait_ns(base, start);
            base_at = start + wait;
            self.account.rotation_ns += wait;
        }
        if end <= frontier {
            self.wire_free = by_wire;
            self.account.read_hits += 1;
            self.memory = Some(Memory {
                low: memory.low,
                base: frontier,
                base_at: base_at.ceil() as u64,
                limit,
            });
            self.done.push(request.due(by_wire.ceil() as u64));
            return true;
        }
        let passed = base_at + self.geometry.pass_ns(base, end as f64);
        self.account.operations += 1;
        self.account.transfer_ns += (passed - start.max(base_at)).max(0.0);
        let due = passed.max(by_wire).ceil() as u64;
        self.memory = None;
        self.head = end;
        self.arm = Some(Work::Serve(request, due));
        true
    }

    /// Seek, wait for the rotation, and transfer. Returns when that ends.
    fn work(&mut self, offset: u64, length: u64, start: f64) -> u64 {
        let (wait, seek) = self.positioning(offset, start);
        let transfer = self
            .geometry
            .pass_ns(offset as f64, (offset + length) as f64);
        let account = &mut self.account;
        account.operations += 1;
        account.seeks += u64::from(seek > 0.0);
        account.seek_ns += seek;
        account.rotation_ns += wait - seek;
        account.transfer_ns += transfer;
        (start + wait + transfer).ceil() as u64
    }

    fn destage(&mut self) -> bool {
        let free = self.free_at;
        let along = self.dirty.from(self.head);
        let next = match self.settings.order {
            QueueOrder::Nearest => along.take(self.settings.depth).min_by(|a, b| {
                let cost = |extent: &Extent| {
                    self.positioning(extent.offset, free.max(extent.ready) as f64)
                        .0
                };
                cost(a).total_cmp(&cost(b))
            }),
            _ => along.take(1).next(),
        };
        let extent = match next.and_then(|next| self.dirty.take(next.offset, DESTAGE_BYTES)) {
            Some(extent) => extent,
            None => return false,
        };
        let end = self.work(extent.offset, extent.length, free.max(extent.ready) as f64);
        self.arm = Some(Work::Destage(extent, end));
        true
    }

    /// Admit writes to the cache while there is room, and answer each from there.
    fn let_in(&mut self, at: f64) {
        while let Some(request) = self.outside.front().copied() {
            let room = self.dirty.bytes() + request.length <= self.settings.cache;
            if !room && !self.dirty.is_empty() {
                return;
            }
            self.outside.pop_front();
            let length = request.length as f64;
            let start = at.max(self.ready(&request)).max(self.wire_free);
            self.wire_free = start + length / self.settings.interface * NS;
            let there = self.wire_free.ceil() as u64;
            self.done.push(request.due(there));
            self.writes += 1;
            self.dirty.insert(Extent {
                offset: request.offset,
                length: request.length,
                oldest: self.writes,
                ready: there,
            });
        }
    }

    /// Complete flushes. A flush is done when every write admitted before it is on the platter.
    fn answer_flushes(&mut self, at: u64) {
        let at_work = match &self.arm {
            Some(Work::Destage(extent, _)) => Some(extent.oldest),
            _ => None,
        };
        let oldest = self.dirty.oldest().into_iter().chain(at_work).min();
        let done = &mut self.done;
        let overhead = self.settings.overhead;
        self.flushes.retain(|(request, writes)| {
            let waits = oldest.is_some_and(|oldest| oldest <= *writes);
            if !waits {
                let ready = (request.arrival as f64 + overhead).ceil() as u64;
                done.push(request.due(at.max(ready)));
            }
            waits
        });
    }
}

#[cfg(test)]
mod tests;
