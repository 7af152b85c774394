//! A disk without moving parts: a number of parallel requests, each with a latency, that share one
//! transfer rate.

use std::collections::VecDeque;

use super::flash::{Collected, Flash};
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
    /// How long it takes to move a page, and to erase a block, where the disk collects garbage.
    pub page_move: f64,
    pub erase: f64,
}

pub struct Flat {
    settings: Settings,
    /// Requests, each with the time that the flash spends on collecting garbage for it.
    waiting: VecDeque<(Request, f64)>,
    working: Vec<Due>,
    /// When the last of the slots for parallel requests became free.
    place_free: u64,
    channel_free: f64,
    written_to: Option<u64>,
    unflushed: bool,
    /// None: the disk never collects garbage.
    flash: Option<Flash>,
    account: Account,
}

impl Mechanism for Flat {
    fn submit(&mut self, request: Request) {
        let collected = self.map(request.kind, request.offset, request.length);
        self.account.moved_pages += collected.moved_pages;
        self.account.erased_blocks += collected.erased_blocks;
        let collecting = collected.moved_pages as f64 * self.settings.page_move
            + collected.erased_blocks as f64 * self.settings.erase;
        self.waiting.push_back((request, collecting));
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

    fn note(&mut self, kind: Kind, offset: u64, length: u64) {
        self.map(kind, offset, length);
    }

    fn take_flash(&mut self) -> Option<Flash> {
        self.flash.take()
    }

    fn put_flash(&mut self, flash: Option<Flash>) {
        self.flash = flash;
    }

    fn account(&mut self) -> &mut Account {
        &mut self.account
    }
}

impl Flat {
    pub fn new(settings: Settings, flash: Option<Flash>) -> Self {
        Flat {
            settings,
            waiting: VecDeque::new(),
            working: Vec::new(),
            place_free: 0,
            channel_free: 0.0,
            written_to: None,
            unflushed: false,
            flash,
            account: Account::default(),
        }
    }

    /// Let the flash do what a request asks of it. Returns what it collects for that.
    fn map(&mut self, kind: Kind, offset: u64, length: u64) -> Collected {
        match (&mut self.flash, kind) {
            (Some(flash), Kind::Write) => return flash.write(offset, length),
            (Some(flash), Kind::Trim) => flash.trim(offset, length),
            _ => {}
        }
        Collected::default()
    }

    fn begin(&mut self) -> bool {
        let settings = &self.settings;
        let busy = self.working.len();
        let (request, collecting) = match self.waiting.front() {
            // What was written before a flush must have completed.
            Some((first, _)) if first.kind == Kind::Flush && busy > 0 => return false,
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
                // Moving and erasing occupy the flash as a transfer does.
                let transfer = length / settings.write_rate * NS + collecting;
                (settings.write + jump, transfer)
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
        Flat::new(settings(depth), None)
    }

    fn settings(depth: usize) -> Settings {
        Settings {
            read: 80.0 * US,
            write: 20.0 * US,
            jump: 500.0 * US,
            flush: 300.0 * US,
            overhead: 5.0 * US,
            read_rate: 1e9,
            write_rate: 5e8,
            depth,
            page_move: 50.0 * US,
            erase: 1000.0 * US,
        }
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
    fn a_write_waits_for_the_pages_that_are_moved_for_it_and_for_the_erasure() {
        // A disk of two blocks of four pages, and two more blocks. All is written once, which fills
        // two blocks, then two pages of each again, which fills the third.
        let page = 4096;
        let mut disk = Flat::new(settings(1), Some(Flash::new(8 * page, 4 * page, 0.0)));
        disk.note(Kind::Write, 0, 8 * page);
        for place in [0, 4, 1, 5] {
            disk.note(Kind::Write, place * page, page);
        }
        // A third page of the first block leaves one live page there, which moves into the last
        // erased block.
        disk.submit(request(9, Kind::Write, 2 * page, page, 0));
        assert_eq!(
            (disk.account.moved_pages, disk.account.erased_blocks),
            (1, 1)
        );
        let plain = 5_000 + 20_000 + 500_000 + 8_192;
        assert_eq!(times(&mut disk), [(9, plain + 50_000 + 1_000_000)]);
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
