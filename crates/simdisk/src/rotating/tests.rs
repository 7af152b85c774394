//! Tests of the rotating disk under a simulated clock: against closed forms, and against a second,
//! slow computation.

use super::*;
use crate::geometry::Seek;

const MS: f64 = 1e6;
const TURN: f64 = 60e9 / 7200.0;
const SIZE: u64 = 512 << 20;

fn settings() -> Settings {
    Settings {
        size: SIZE,
        overhead: 0.1 * MS,
        interface: 500e6,
        ahead: 8 << 20,
        cache: 0,
        depth: 1,
        order: QueueOrder::Arrival,
    }
}

fn geometry() -> Geometry {
    let seek = Seek::through(0.8 * MS, 8.5 * MS, 18.0 * MS).unwrap();
    Geometry::new(SIZE as f64, (180e6, 90e6), 7200.0, seek)
}

fn disk(settings: Settings) -> Rotating {
    Rotating::new(geometry(), settings)
}

struct Caller {
    disk: Rotating,
    now: u64,
    tag: u64,
    /// Answers that were due while something else was submitted.
    early: Vec<Due>,
}

impl Caller {
    fn of(disk: Rotating) -> Self {
        let (now, tag) = (0, 0);
        let early = Vec::new();
        Caller {
            disk,
            now,
            tag,
            early,
        }
    }

    fn ask(&mut self, kind: Kind, offset: u64, length: u64) {
        self.tag += 1;
        self.disk.submit(Request {
            tag: self.tag,
            kind,
            offset,
            length,
            arrival: self.now,
        });
        self.disk.advance(self.now, &mut self.early);
    }

    /// Wait for everything submitted. Returns the answers in order.
    fn wait(&mut self) -> Vec<Due> {
        let mut all = std::mem::take(&mut self.early);
        while let Some(at) = self.disk.next_at() {
            self.now = self.now.max(at);
            self.disk.advance(self.now, &mut all);
        }
        all
    }

    /// Submit one request and return the nanoseconds until its answer.
    fn takes(&mut self, kind: Kind, offset: u64, length: u64) -> f64 {
        let start = self.now;
        self.ask(kind, offset, length);
        let tag = self.tag;
        let mut all = Vec::new();
        while !all.iter().any(|due: &Due| due.tag == tag) {
            self.now = self.disk.next_at().unwrap();
            self.disk.advance(self.now, &mut all);
        }
        (self.now - start) as f64
    }
}

/// Return offsets all over the disk, the same every time.
fn offsets(count: usize) -> impl Iterator<Item = u64> {
    let mut word = 88172645463325252_u64;
    std::iter::repeat_with(move || {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word % (SIZE / 4096) * 4096
    })
    .take(count)
}

#[test]
fn a_random_read_takes_the_mean_seek_half_a_turn_and_overhead() {
    let mut caller = Caller::of(disk(settings()));
    let count = 20_000;
    let sum: f64 = offsets(count)
        .map(|offset| caller.takes(Kind::Read, offset, 4096))
        .sum();
    // Positions are distributed evenly over bytes, of which the outer tracks hold more: the mean
    // over such pairs, by brute force.
    let geometry = geometry();
    let (steps, mut seek) = (500, 0.0);
    let at = |n: usize| (n as f64 + 0.5) / steps as f64 * SIZE as f64;
    for a in 0..steps {
        for b in 0..steps {
            seek += geometry.seek_ns(at(a), at(b)) / (steps * steps) as f64;
        }
    }
    let wanted = 0.1 * MS + seek + TURN / 2.0 + 4096.0 / 135e6 * NS;
    let found = sum / count as f64;
    assert!((found / wanted - 1.0).abs() < 0.01, "{found} {wanted}");
    assert!((seek / (8.5 * MS) - 1.0).abs() < 0.05);
}

#[test]
fn who_reads_on_is_served_at_the_rate_of_the_place_whether_one_at_a_time_or_several() {
    for (first, rate) in [(0, 180e6), (SIZE - (32 << 20), 93.4e6)] {
        let mut caller = Caller::of(disk(settings()));
        caller.takes(Kind::Read, first, 4096);
        let start = caller.now;
        let mut at = first + 4096;
        while at < first + (16 << 20) {
            caller.takes(Kind::Read, at, 128 << 10);
            caller.now += 150_000; // overhead of the machine itself
            at += 128 << 10;
        }
        let found = (at - first) as f64 / (caller.now - start) as f64 * NS;
        assert!((found / rate - 1.0).abs() < 0.03, "{found}");
    }
}

#[test]
fn without_reading_ahead_who_asks_a_little_late_waits_for_a_whole_turn() {
    let mut caller = Caller::of(disk(Settings {
        ahead: 0,
        ..settings()
    }));
    caller.takes(Kind::Read, 0, 128 << 10);
    let took = caller.takes(Kind::Read, 128 << 10, 128 << 10);
    let transfer = f64::from(128 << 10) / 180e6 * NS;
    assert!((took - TURN - transfer).abs() < 0.02 * MS, "{took}");
}

#[test]
fn what_was_read_ahead_comes_by_the_wire_and_a_pause_costs_no_more() {
    let mut caller = Caller::of(disk(settings()));
    caller.takes(Kind::Read, 0, 128 << 10);
    caller.now += 10 * MS as u64;
    let took = caller.takes(Kind::Read, 128 << 10, 1 << 20);
    let wire = f64::from(1 << 20) / 500e6 * NS;
    assert!((took - 0.1 * MS - wire).abs() < 2.0, "{took}");
    // After an hour it has filled its buffer, and no more.
    caller.now += 3600 * NS as u64;
    assert!(caller.takes(Kind::Read, (1 << 20) + (128 << 10), 1 << 20) < 3.0 * MS);
    assert_eq!(caller.disk.account.read_hits, 2);
}

#[test]
fn writes_that_touch_are_one_where_they_come_in_time_and_wait_for_a_turn_where_not() {
    let mut caller = Caller::of(disk(settings()));
    caller.ask(Kind::Write, 0, 1 << 20);
    caller.ask(Kind::Write, 1 << 20, 1 << 20);
    caller.wait();
    let (start, in_time) = (caller.now, caller.disk.account.rotation_ns);
    assert!(in_time < TURN);
    caller.takes(Kind::Write, 2 << 20, 4096);
    assert!(caller.disk.account.rotation_ns - in_time > TURN - 0.11 * MS);
    assert!((caller.now - start) as f64 > TURN);
}

#[test]
fn a_write_cache_answers_by_the_wire_and_a_flush_waits_for_the_platter() {
    let mut caller = Caller::of(disk(Settings {
        cache: 16 << 20,
        ..settings()
    }));
    let mut writes = 0.0;
    for offset in offsets(10) {
        writes += caller.takes(Kind::Write, offset, 4096);
    }
    assert!(writes < 10.0 * 0.12 * MS, "{writes}");
    let flush = caller.takes(Kind::Flush, 0, 0);
    assert!(
        flush > 5.0 * 2.0 * MS && flush < 10.0 * 27.0 * MS,
        "{flush}"
    );
    assert_eq!(caller.disk.account.operations, 10);
    // Nothing is left to write.
    let again = caller.takes(Kind::Flush, 0, 0);
    assert!((again - 0.1 * MS).abs() < 2.0, "{again}");
}

#[test]
fn a_full_write_cache_takes_in_as_fast_as_the_platter_does() {
    let mut caller = Caller::of(disk(Settings {
        cache: 4 << 20,
        ..settings()
    }));
    let mut at = 0;
    while at < 64 << 20 {
        caller.takes(Kind::Write, at, 1 << 20);
        at += 1 << 20;
    }
    caller.takes(Kind::Flush, 0, 0);
    let wanted = geometry().pass_ns(0.0, at as f64);
    let found = caller.now as f64;
    assert!((found / wanted - 1.0).abs() < 0.05, "{found} {wanted}");
}

#[test]
fn the_elevator_goes_one_way_and_the_nearest_is_faster_still_than_arrival() {
    let time = |order, depth| {
        let mut caller = Caller::of(disk(Settings {
            order,
            depth,
            ..settings()
        }));
        for offset in offsets(64) {
            caller.ask(Kind::Read, offset, 4096);
        }
        let all = caller.wait();
        assert_eq!(all.len(), 64);
        (caller.now, all)
    };
    let (arrival, _) = time(QueueOrder::Arrival, 64);
    let (elevator, order) = time(QueueOrder::Elevator, 64);
    let (nearest, _) = time(QueueOrder::Nearest, 64);
    let places: Vec<u64> = offsets(64).collect();
    // All but the first, which was alone in the queue, and those that hit the read-ahead.
    let rest: Vec<u64> = order[1..]
        .iter()
        .map(|due| places[due.tag as usize - 1])
        .collect();
    let turns = rest.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!(turns <= 1, "{turns}");
    assert!(
        elevator < arrival / 10 * 8 && nearest < elevator,
        "{nearest} {elevator} {arrival}"
    );
}

#[test]
fn nobody_waits_for_ever_behind_what_lies_nearer() {
    let order = QueueOrder::Nearest;
    let mut caller = Caller::of(disk(Settings {
        order,
        depth: 32,
        ..settings()
    }));
    caller.ask(Kind::Write, 0, 4096);
    caller.ask(Kind::Write, SIZE - 4096, 4096); // the far one
    let (mut all, mut near) = (Vec::new(), 0_u64);
    while !all.iter().any(|due: &Due| due.tag == 2) {
        near += 1;
        caller.ask(Kind::Write, near % 64 * 4096, 4096);
        caller.now = caller.disk.next_at().unwrap();
        caller.disk.advance(caller.now, &mut all);
        assert!(caller.now < NS as u64);
    }
}

#[test]
fn whatever_is_asked_is_answered_once_and_never_before_wire_and_overhead_allow() {
    for cache in [0, 1 << 20] {
        for order in [
            QueueOrder::Arrival,
            QueueOrder::Elevator,
            QueueOrder::Nearest,
        ] {
            let mut caller = Caller::of(disk(Settings {
                cache,
                order,
                depth: 8,
                ..settings()
            }));
            let (mut all, mut submitted) = (Vec::new(), Vec::new());
            for (n, offset) in offsets(3000).enumerate() {
                let length = 4096 * (1 + n as u64 % 64).min((SIZE - offset) / 4096);
                let kind = [Kind::Read, Kind::Write, Kind::Write, Kind::Flush][n % 4];
                // Every third request continues where the last one ended.
                let offset = match submitted.last() {
                    Some((_, _, end, _)) if n % 3 == 0 && end + length <= SIZE => *end,
                    _ => offset,
                };
                submitted.push((kind, length, offset + length, caller.now));
                caller.ask(kind, offset, length);
                caller.now += (offset >> 4) % 9_000_000;
                caller.disk.advance(caller.now, &mut all);
            }
            all.extend(caller.wait());
            all.sort_by_key(|due| due.tag);
            assert!(all.iter().map(|due| due.tag).eq(1..=3000));
            for (due, (kind, length, _, arrival)) in all.iter().zip(submitted) {
                assert_eq!(due.arrival, arrival);
                let moved = if kind == Kind::Flush { 0 } else { length };
                let least = 0.1 * MS + moved as f64 / 500e6 * NS;
                assert!((due.at - arrival) as f64 >= least - 2.0, "{due:?} {kind:?}");
            }
        }
    }
}
