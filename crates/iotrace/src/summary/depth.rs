//! How long how many operations were in flight.
//!
//! Operations arrive in the order in which they ended. The recent time is kept as segments of equal
//! depth; an operation adds one to all segments that it overlaps. When there are too many
//! segments, the oldest are counted and forgotten. An operation that began before them is then
//! counted from the oldest segment kept, and the result is marked as approximate.

use std::collections::VecDeque;

use serde::Serialize;

const MOST_SEGMENTS: usize = 1 << 14;
/// Higher depths count as this one.
const MOST_DEPTH: usize = 4096;

/// The time during which this many operations were in flight.
#[derive(Debug, PartialEq, Serialize)]
pub struct Depth {
    pub depth: u64,
    pub ns: u64,
}

pub struct Depths {
    /// Start and depth of each segment, in order; the last ends at `end`.
    segments: VecDeque<(u64, u32)>,
    end: u64,
    ns_by_depth: Vec<u64>,
    total_ns: u64,
    approximate: bool,
}

pub struct DepthReport {
    pub busy_ns: u64,
    /// Summed times of all operations.
    pub total_ns: u64,
    pub peak: u64,
    pub shares: Vec<Depth>,
    pub approximate: bool,
}

impl Depths {
    pub fn new() -> Self {
        Depths {
            segments: VecDeque::new(),
            end: 0,
            ns_by_depth: Vec::new(),
            total_ns: 0,
            approximate: false,
        }
    }

    /// Count an operation. One that ended before an earlier one, which no sound trace has, counts
    /// as if it had ended with it.
    pub fn add(&mut self, start: u64, end: u64) {
        self.total_ns = self.total_ns.saturating_add(end - start.min(end));
        let end = end.max(self.end);
        let mut start = start.min(end);
        if let Some(&(first, _)) = self.segments.front() {
            if start < first {
                // Before the first operation nothing was forgotten: extend the segments to it.
                if self.ns_by_depth.is_empty() {
                    self.segments.push_front((start, 0));
                } else {
                    self.approximate = true;
                    start = first;
                }
            }
        } else {
            (self.segments, self.end) = (VecDeque::from([(start, 0)]), start);
        }
        if start >= self.end {
            if start > self.end {
                self.segments.push_back((self.end, 0));
            }
            self.segments.push_back((start, 1));
        } else {
            let after = self.segments.partition_point(|&(begin, _)| begin < start);
            let begins_here = self.segments.get(after).is_some_and(|one| one.0 == start);
            if !begins_here {
                // A segment begins before `start`, since the first begins at or before it.
                let (_, depth) = self.segments[after - 1];
                self.segments.insert(after, (start, depth));
            }
            for (_, depth) in self.segments.range_mut(after..) {
                *depth += 1;
            }
            if end > self.end {
                self.segments.push_back((self.end, 1));
            }
        }
        self.end = end;
        if self.segments.len() > MOST_SEGMENTS {
            self.forget(MOST_SEGMENTS / 2);
        }
    }

    /// Count the oldest segments until `kept` are left.
    fn forget(&mut self, kept: usize) {
        while self.segments.len() > kept {
            let Some((start, depth)) = self.segments.pop_front() else {
                return;
            };
            let end = self.segments.front().map_or(self.end, |next| next.0);
            let depth = (depth as usize).min(MOST_DEPTH);
            if self.ns_by_depth.len() <= depth {
                self.ns_by_depth.resize(depth + 1, 0);
            }
            self.ns_by_depth[depth] += end - start;
        }
    }

    pub fn finish(mut self, duration_ns: u64) -> DepthReport {
        self.forget(0);
        let busy_ns = self.ns_by_depth.iter().skip(1).sum();
        let mut shares: Vec<Depth> = (self.ns_by_depth.iter().enumerate())
            .skip(1)
            .filter(|(_, ns)| **ns > 0)
            .map(|(depth, ns)| Depth {
                depth: depth as u64,
                ns: *ns,
            })
            .collect();
        shares.insert(
            0,
            Depth {
                depth: 0,
                ns: duration_ns.saturating_sub(busy_ns),
            },
        );
        DepthReport {
            busy_ns,
            total_ns: self.total_ns,
            peak: shares.last().map_or(0, |one| one.depth),
            shares,
            approximate: self.approximate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depths(operations: &[(u64, u64)], duration: u64) -> Vec<(u64, u64)> {
        let mut depths = Depths::new();
        let mut sorted = operations.to_vec();
        sorted.sort_by_key(|one| one.1);
        sorted
            .iter()
            .for_each(|(start, end)| depths.add(*start, *end));
        let found = depths.finish(duration);
        assert!(!found.approximate);
        found.shares.iter().map(|one| (one.depth, one.ns)).collect()
    }

    #[test]
    fn operations_one_after_the_other_are_one_in_flight() {
        assert_eq!(
            depths(&[(0, 10), (10, 15), (20, 30)], 40),
            [(0, 15), (1, 25)]
        );
    }

    #[test]
    fn an_operation_around_others_counts_with_each() {
        assert_eq!(
            depths(&[(10, 20), (15, 40), (5, 50), (60, 61)], 100),
            // 5-10: 1, 10-15: 2, 15-20: 3, 20-40: 2, 40-50: 1, 60-61: 1
            [(0, 54), (1, 16), (2, 25), (3, 5)]
        );
    }

    #[test]
    fn depths_are_those_counted_moment_by_moment() {
        let mut state = 7_u64;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 33) % below
        };
        let operations: Vec<(u64, u64)> = (0..300)
            .map(|_| {
                let start = next(900);
                (start, start + next(60))
            })
            .collect();
        let mut wanted = vec![0_u64; 100];
        for moment in 0..1000 {
            let in_flight = operations
                .iter()
                .filter(|(a, b)| (*a..*b).contains(&moment))
                .count();
            wanted[in_flight] += 1;
        }
        let wanted: Vec<(u64, u64)> = (wanted.iter().enumerate())
            .filter(|(depth, ns)| *depth == 0 || **ns > 0)
            .map(|(depth, ns)| (depth as u64, *ns))
            .collect();
        assert_eq!(depths(&operations, 1000), wanted);
    }

    #[test]
    fn beyond_the_limit_old_segments_are_forgotten_and_it_says_so() {
        let mut depths = Depths::new();
        for n in 0..2 * MOST_SEGMENTS as u64 {
            depths.add(10 * n, 10 * n + 5);
        }
        assert!(depths.segments.len() <= MOST_SEGMENTS);
        depths.add(0, 20 * MOST_SEGMENTS as u64);
        let found = depths.finish(20 * MOST_SEGMENTS as u64);
        assert!(found.approximate);
        assert_eq!(found.peak, 2);
        let sum: u64 = found.shares.iter().map(|one| one.ns).sum();
        assert_eq!(sum, 20 * MOST_SEGMENTS as u64);
    }
}
