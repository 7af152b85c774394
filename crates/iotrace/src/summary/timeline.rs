//! What happened when: totals for each of at most 240 equal spans of time, which double as the
//! trace goes on.

use serde::Serialize;

use super::Purpose;
use crate::Op;

const MOST_SPANS: usize = 240;
const FIRST_SPAN_NS: u64 = 10_000;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Span {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub syncs: u64,
    pub metadata: u64,
    /// Mean number of reads, writes and syncs in flight.
    pub in_flight: f64,
    /// Threads that ended an operation in it.
    pub threads: u64,
}

#[derive(Debug, Serialize)]
pub struct TimelineReport {
    pub span_ns: u64,
    pub spans: Vec<Span>,
}

/// An operation counts to the span in which it ended, its time in flight to all that it overlaps.
#[derive(Default)]
struct Counts {
    span: Span,
    in_flight_ns: u64,
    threads: Vec<u64>,
}

pub struct Timeline {
    span_ns: u64,
    spans: Vec<Counts>,
}

impl Timeline {
    pub fn new() -> Self {
        Timeline {
            span_ns: FIRST_SPAN_NS,
            spans: Vec::new(),
        }
    }

    pub fn add(&mut self, op: &Op, purpose: Purpose, read: u64, written: u64) {
        let end_ns = op.end_ns();
        let place = self.place(end_ns);
        let counts = &mut self.spans[place];
        let span = &mut counts.span;
        match purpose {
            Purpose::Read => span.reads += 1,
            Purpose::Write => span.writes += 1,
            Purpose::Sync => span.syncs += 1,
            Purpose::Metadata => span.metadata += 1,
            Purpose::Threads => {}
        }
        span.read_bytes = span.read_bytes.saturating_add(read);
        span.written_bytes = span.written_bytes.saturating_add(written);
        // The reader allows few enough threads.
        let (word, bit) = (op.thread as usize / 64, op.thread % 64);
        if counts.threads.len() <= word {
            counts.threads.resize(word + 1, 0);
        }
        counts.threads[word] |= 1 << bit;
        if matches!(purpose, Purpose::Read | Purpose::Write | Purpose::Sync) {
            let mut start = op.start_ns;
            for place in (op.start_ns / self.span_ns) as usize..=place {
                let end = end_ns.min((place as u64 + 1).saturating_mul(self.span_ns));
                let counts = &mut self.spans[place];
                counts.in_flight_ns =
                    (counts.in_flight_ns).saturating_add(end.saturating_sub(start));
                start = end;
            }
        }
    }

    /// Return the place of the span that holds a moment; make it, and let spans double until it fits.
    fn place(&mut self, at_ns: u64) -> usize {
        while at_ns / self.span_ns >= MOST_SPANS as u64 {
            let old = std::mem::take(&mut self.spans);
            for (place, counts) in old.into_iter().enumerate() {
                match place % 2 {
                    0 => self.spans.push(counts),
                    _ => {
                        if let Some(before) = self.spans.last_mut() {
                            before.absorb(counts);
                        }
                    }
                }
            }
            self.span_ns = self.span_ns.saturating_mul(2);
        }
        let place = (at_ns / self.span_ns) as usize;
        if self.spans.len() <= place {
            self.spans.resize_with(place + 1, Counts::default);
        }
        place
    }

    pub fn finish(mut self, duration_ns: u64) -> TimelineReport {
        if duration_ns > 0 {
            self.place(duration_ns - 1);
        }
        let span_ns = self.span_ns;
        let spans = (self.spans.into_iter())
            .map(|counts| Span {
                in_flight: counts.in_flight_ns as f64 / span_ns as f64,
                threads: counts
                    .threads
                    .iter()
                    .map(|word| u64::from(word.count_ones()))
                    .sum(),
                ..counts.span
            })
            .collect();
        TimelineReport { span_ns, spans }
    }
}

impl Counts {
    fn absorb(&mut self, other: Counts) {
        let (mine, its) = (&mut self.span, other.span);
        mine.reads += its.reads;
        mine.read_bytes = mine.read_bytes.saturating_add(its.read_bytes);
        mine.writes += its.writes;
        mine.written_bytes = mine.written_bytes.saturating_add(its.written_bytes);
        mine.syncs += its.syncs;
        mine.metadata += its.metadata;
        self.in_flight_ns = self.in_flight_ns.saturating_add(other.in_flight_ns);
        if self.threads.len() < other.threads.len() {
            self.threads.resize(other.threads.len(), 0);
        }
        for (word, other) in self.threads.iter_mut().zip(&other.threads) {
            *word |= other;
        }
    }
}
