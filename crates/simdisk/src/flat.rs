//! A disk without moving parts: a number of parallel requests, each with a latency, that share one
//! transfer rate.

use std::collections::VecDeque;

use super::{Account, Due, Kind, Mechanism, Request, NS};

/// Latencies in nanoseconds, rates in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub read: f64,
    pub write: f64,
    /// Extra latency of a write that does not continue where the last one ended: a flash block has
    /// to be erased and copied.
    pub jump: f64,
    pub flush: f64,
    pub overhead: f64,
    pub read_rate: f64,
    pub write_rate: f64,
    pub depth: usize,
}

pub struct Flat {
    settings: Settings,
    waiting: VecDeque<Request>,
    working: Vec<Due>,
    /// When the last of the slots for parallel requests became free.
    place_free: u64,
    channel_free: f64,
    written_to: Option<u64>,
    unflushed: bool,
    account: Account,
}

impl Mechanism for Flat {
    fn submit(&mut self, request: Request) {
        self.waiting.push_back(request);
    }

    fn advance(&mut self, now: u64, into: &mut Vec<Due>) {
        loop {
            while self.begin() {}
            let first = self
                .working
                .iter()
                .enumerate()
                .min_by_key(|(_, due)| due.at);
            match first {
                Some((place, due)) if due.at <= now => {
                    self.place_free = due.at;
                    into.push(*due);
                    self.working.swap_remove(place);
                }
                _ => return,
            }
        }
    }

    fn next_at(&self) -> Option<u64> {
        self.working.iter().map(|due| due.at).min()
    }

    fn trims(&self) -> bool {
        true
    }

    fn account(&mut self) -> &mut Account {
        &mut self.account
    }
}

impl Flat {
    pub fn new(settings: Settings) -> Self {
        Flat {
            settings,
            waiting: VecDeque::new(),
            working: Vec::new(),
            place_free: 0,
            channel_free: 0.0,
            written_to: None,
            unflushed: false,
            account: Account::default(),
        }
    }

    fn begin(&mut self) -> bool {
        let settings = &self.settings;
        let busy = self.working.len();
        let request = match self.waiting.front() {
            // What was written before a flush must have completed.
            Some(first) if first.kind == Kind::Flush && busy > 0 => return false,
            Some(first) if busy < settings.depth => *first,
            _ => return false,
        };
        self.waiting.pop_front();
        let length = request.length as f64;
        let start = (request.arrival as f64 + settings.overhead).max(self.place_free as f64);
        let account = &mut self.account;
        let (latency, transfer) = match request.kind {
            Kind::Read => (settings.read, length / settings.read_rate * NS),
            Kind::Write => {
                let goes_on = self.written_to == Some(request.offset);
                self.written_to = Some(request.offset + request.length);
                self.unflushed = true;
                account.seeks += u64::from(!goes_on);
                let jump = if goes_on { 0.0 } else { settings.jump };
                (settings.write + jump, length / settings.write_rate * NS)
            }
            Kind::Flush if std::mem::take(&mut self.unflushed) => (settings.flush, 0.0),
            Kind::Flush | Kind::Trim => (0.0, 0.0),
        };
        let mut end = start + latency;
        if transfer > 0.0 {
            end = end.max(self.channel_free) + transfer;
            self.channel_free = end;
        }
        account.operations += 1;
        account.latency_ns += latency;
        account.transfer_ns += transfer;
        self.working.push(request.due(end.ceil() as u64));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: f64 = 1e3;

    fn flat(depth: usize) -> Flat {
        Flat::new(Settings {
            read: 80.0 * US,
            write: 20.0 * US,
            jump: 500.0 * US,
            flush: 300.0 * US,
            overhead: 5.0 * US,
            read_rate: 1e9,
            write_rate: 5e8,
            depth,
        })
    }

    fn request(tag: u64, kind: Kind, offset: u64, length: u64, arrival: u64) -> Request {
        Request {
            tag,
            kind,
            offset,
            length,
            arrival,
        }
    }

    fn times(disk: &mut Flat) -> Vec<(u64, u64)> {
        let mut done = Vec::new();
        disk.advance(u64::MAX, &mut done);
        done.iter().map(|due| (due.tag, due.at)).collect()
    }

    #[test]
    fn one_at_a_time_a_read_takes_overhead_latency_and_transfer() {
        let mut disk = flat(1);
        disk.submit(request(1, Kind::Read, 0, 10_000, 0));
        disk.submit(request(2, Kind::Read, 50_000, 10_000, 0));
        // 5 us, 80 us, 10 us; the second request's overhead overlaps with the first.
        assert_eq!(times(&mut disk), [(1, 95_000), (2, 185_000)]);
    }

    #[test]
    fn several_at_once_share_the_rate_and_not_the_latency() {
        let mut disk = flat(4);
        for tag in 0..4 {
            disk.submit(request(tag, Kind::Read, tag << 20, 10_000, 0));
        }
        let wanted = [(0, 95_000), (1, 105_000), (2, 115_000), (3, 125_000)];
        assert_eq!(times(&mut disk), wanted);
    }

    #[test]
    fn a_write_elsewhere_costs_a_jump_and_one_that_goes_on_does_not() {
        let mut disk = flat(1);
        disk.submit(request(1, Kind::Write, 0, 5_000, 0));
        disk.submit(request(2, Kind::Write, 5_000, 5_000, 0));
        assert_eq!(times(&mut disk), [(1, 535_000), (2, 565_000)]);
        assert_eq!(disk.account.seeks, 1);
    }

    #[test]
    fn a_flush_waits_for_what_works_and_costs_only_after_writes() {
        let mut disk = flat(8);
        disk.submit(request(1, Kind::Write, 0, 5_000, 0));
        disk.submit(request(2, Kind::Flush, 0, 0, 0));
        disk.submit(request(3, Kind::Flush, 0, 0, 2_000_000));
        let wanted = [(1, 535_000), (2, 835_000), (3, 2_005_000)];
        assert_eq!(times(&mut disk), wanted);
    }
}
