//! Which part of the list of operations is done to all files before the next part begins.

use std::ops::Range;

use crate::protocol::{Operation, Order};

/// The parts of the list that are done to all files before the next one begins: the whole; each operation; or what lies
/// between the opening of a file and its close, and each operation that has no file open. A list of folders stands at the
/// head of its part.
pub fn phases(order: Order, operations: &[Operation]) -> Vec<Range<usize>> {
    let mut phases = Vec::new();
    let (mut start, mut is_open) = (0, false);
    for (n, operation) in operations.iter().enumerate() {
        use Operation::{Close, Create, Open, OpenTruncate, OpenWrite};
        match operation {
            Open | OpenWrite | OpenTruncate | Create => is_open = true,
            Close => is_open = false,
            _ => {}
        }
        let ends = match order {
            Order::File => n + 1 == operations.len(),
            Order::Operation => true,
            Order::Phase => !is_open || n + 1 == operations.len(),
        };
        if ends {
            phases.push(start..n + 1);
            start = n + 1;
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation::{Close, Create, Getdents, Open, Read, Stat, Unlink, WriteAll};

    #[test]
    fn a_phase_is_from_an_opening_to_its_close() {
        let operations = [
            Create, WriteAll, Close, Getdents, Stat, Open, Read, Close, Unlink,
        ];
        assert_eq!(
            phases(Order::Phase, &operations),
            [0..3, 3..4, 4..5, 5..8, 8..9]
        );
        assert_eq!(
            phases(Order::File, &operations),
            vec![Range { start: 0, end: 9 }]
        );
        assert_eq!(phases(Order::Operation, &operations).len(), 9);
    }
}
