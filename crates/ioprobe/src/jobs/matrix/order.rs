//! The order in which a test visits the records of its file, computed before the clock starts.
//!
//! Every order except that of the record rewrite visits each record exactly once. A strided read
//! starts at record 0 and advances by the stride. At the end of the file it starts over at the
//! first record that it has not visited: 0, 17, 34 ..., 1, 18, 35 ...

use crate::content::mix;
use crate::protocol::MatrixTest;

#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    Rising,
    Falling,
    /// Record 0 every time.
    First,
    Listed(Vec<u32>),
}

impl Order {
    /// Return the order of a test. `draw` seeds the permutation of a random test.
    pub fn of(test: MatrixTest, records: u32, stride: u32, draw: u64) -> Self {
        match test {
            MatrixTest::RandomRead | MatrixTest::RandomWrite => {
                Order::Listed(permutation(records, draw))
            }
            MatrixTest::BackwardRead => Order::Falling,
            MatrixTest::RecordRewrite => Order::First,
            MatrixTest::StrideRead => Order::Listed(strided(records, stride)),
            _ => Order::Rising,
        }
    }

    /// Return whether the records are in file order, so that no seeks are needed.
    pub fn is_rising(&self) -> bool {
        *self == Order::Rising
    }

    #[inline(always)]
    pub fn record(&self, step: u32, records: u32) -> u32 {
        match self {
            Order::Rising => step,
            Order::Falling => records - 1 - step,
            Order::First => 0,
            Order::Listed(list) => list[step as usize],
        }
    }
}

fn strided(records: u32, stride: u32) -> Vec<u32> {
    (0..stride.min(records))
        .flat_map(|first| (first..records).step_by(stride as usize))
        .collect()
}

/// Fisher-Yates shuffle on the SplitMix64 sequence that follows `draw`, with rejection sampling to
/// avoid modulo bias.
fn permutation(records: u32, draw: u64) -> Vec<u32> {
    let mut list: Vec<u32> = (0..records).collect();
    let mut state = draw;
    for last in (1..list.len()).rev() {
        let places = last as u64 + 1;
        let fair = u64::MAX - u64::MAX % places;
        let word = loop {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let word = mix(state);
            if word < fair {
                break word;
            }
        };
        list.swap(last, (word % places) as usize);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(test: MatrixTest, records: u32) -> Vec<u32> {
        let order = Order::of(test, records, 17, 5);
        (0..records)
            .map(|step| order.record(step, records))
            .collect()
    }

    #[test]
    fn every_record_is_met_once_but_in_the_record_rewrite() {
        for records in [1, 2, 16, 17, 18, 35, 256] {
            for test in [
                MatrixTest::Write,
                MatrixTest::RandomRead,
                MatrixTest::RandomWrite,
                MatrixTest::BackwardRead,
                MatrixTest::StrideRead,
                MatrixTest::Fread,
            ] {
                let mut met = whole(test, records);
                met.sort_unstable();
                assert_eq!(met, (0..records).collect::<Vec<_>>(), "{test:?} {records}");
            }
            assert_eq!(
                whole(MatrixTest::RecordRewrite, records),
                vec![0; records as usize]
            );
        }
    }

    #[test]
    fn a_strided_read_advances_by_seventeen_records() {
        let met = whole(MatrixTest::StrideRead, 40);
        assert_eq!(met[..7], [0, 17, 34, 1, 18, 35, 2]);
        assert_eq!(met[37..], [32, 16, 33]);
    }

    #[test]
    fn a_backward_read_falls_from_the_last_record_to_the_first() {
        assert_eq!(whole(MatrixTest::BackwardRead, 4), [3, 2, 1, 0]);
    }

    #[test]
    fn all_permutations_of_three_come_equally_often() {
        let mut counts = std::collections::BTreeMap::new();
        for draw in 0..6000 {
            *counts.entry(permutation(3, mix(draw))).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        // A binomial count of 6000 at 1/6 has a standard deviation of 29.
        assert!(
            counts.values().all(|n| (850..1150).contains(n)),
            "{counts:?}"
        );
    }
}
