//! CPU time of the whole machine (/proc/stat): user, system, idle and iowait.
//!
//! These cover all processes, and are counted in ticks, usually of a hundredth of a second. iowait
//! is counted for the CPU on which the waiting task ran last, as long as that CPU is idle
//! (Documentation/filesystems/proc.rst): on a busy machine there is none.

use std::fs::File;

use serde_json::{json, Value};

use super::{lines, number, pread};

/// With more CPUs than this, the others are only in the sum. The buffer holds sixteen numbers for
/// each.
const MOST: usize = 64;
const ROOM: usize = 12 * 1024;

pub struct Processors {
    file: Option<File>,
    tick_ns: u64,
}

/// Ticks since boot.
#[derive(Clone, Copy)]
pub struct Ticks {
    all: Spent,
    interrupts: u64,
    waiting: [u64; MOST],
    /// Number of per-CPU lines, as far as they fit.
    count: usize,
}

/// User and nice, system and interrupts, idle, iowait, steal.
pub type Spent = [u64; 5];
const WAITING: usize = 3;
/// The columns of a line for hard and soft interrupts.
const INTERRUPTS: std::ops::Range<usize> = 5..7;

impl Processors {
    pub fn none() -> Self {
        Processors {
            file: None,
            tick_ns: 1,
        }
    }

    pub fn open() -> Self {
        // SAFETY: no pointers are involved.
        let hz = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64;
        Processors {
            file: File::open("/proc/stat").ok(),
            tick_ns: 1_000_000_000 / hz,
        }
    }

    pub fn read(&self) -> Option<Ticks> {
        let mut room = [0; ROOM];
        parse(pread(&self.file, &mut room)?)
    }

    pub fn between(&self, before: &Option<Ticks>, after: &Option<Ticks>) -> Value {
        let (before, after) = match (before, after) {
            (Some(before), Some(after)) => (before, after),
            _ => return Value::Null,
        };
        // Not all of these are monotonic: iowait may decrease when it is recounted.
        let ns = |before: u64, after: u64| after.saturating_sub(before) * self.tick_ns;
        let spent = |place: usize| ns(before.all[place], after.all[place]);
        let count = before.count.min(after.count);
        let each = (before.waiting.iter().zip(&after.waiting)).map(|(b, a)| ns(*b, *a));
        json!({
            "count": online(),
            "user_ns": spent(0),
            "sys_ns": spent(1),
            "interrupt_ns": ns(before.interrupts, after.interrupts),
            "idle_ns": spent(2),
            "iowait_ns": spent(WAITING),
            "steal_ns": spent(4),
            "iowait_each_ns": each.take(count.min(MOST)).collect::<Vec<_>>(),
        })
    }
}

fn online() -> i64 {
    // SAFETY: no pointers are involved.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }.max(1)
}

fn parse(text: &[u8]) -> Option<Ticks> {
    let mut lines = lines(text);
    let first = lines.next()?.strip_prefix(b"cpu ")?;
    let mut found = Ticks {
        all: spent(first)?,
        interrupts: of_line(first)?[INTERRUPTS].iter().sum(),
        waiting: [0; MOST],
        count: 0,
    };
    for line in lines {
        let rest = match line.strip_prefix(b"cpu") {
            Some(rest) => rest,
            None => break,
        };
        let space = rest.iter().position(|byte| *byte == b' ');
        if let (Some(waiting), Some(space)) = (found.waiting.get_mut(found.count), space) {
            *waiting = spent(&rest[space..])?[WAITING];
        }
        found.count += 1;
    }
    Some(found)
}

/// Parse the numbers of a CPU line, after its name.
pub fn spent(line: &[u8]) -> Option<Spent> {
    let [user, nice, system, idle, waiting, hard, soft, stolen] = of_line(line)?;
    Some([user + nice, system + hard + soft, idle, waiting, stolen])
}

fn of_line(line: &[u8]) -> Option<[u64; 8]> {
    let mut numbers = [0; 8];
    let words = line.split(|byte| *byte == b' ');
    let words = words.filter(|word| !word.is_empty());
    for (place, word) in numbers.iter_mut().zip(words) {
        *place = number(word)?;
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] =
        b"cpu  10 1 20 300 40 2 3 5 0 0\ncpu0 4 1 9 100 30 1 1 2 0 0\ncpu1 6 0 11 200 10 1 2 3 0 0\nintr 1 2\n";

    #[test]
    fn processors_are_reported_together_and_their_waiting_each() {
        let before = parse(TEXT).unwrap();
        assert_eq!(before.all, [11, 25, 300, 40, 5]);
        assert_eq!(
            (before.count, before.waiting[0], before.waiting[1]),
            (2, 30, 10)
        );
        let mut after = before;
        after.all = [12, 25, 300, 45, 5];
        assert_eq!(before.interrupts, 5);
        after.interrupts = 7;
        after.waiting[0] = 36;
        after.waiting[1] = 9; // it may decrease
        let processors = Processors {
            file: None,
            tick_ns: 10,
        };
        let found = processors.between(&Some(before), &Some(after));
        assert_eq!(found["user_ns"], 10);
        assert_eq!(found["iowait_ns"], 50);
        assert_eq!(found["interrupt_ns"], 20);
        assert_eq!(found["iowait_each_ns"], json!([60, 0]));
        assert_eq!(processors.between(&None, &Some(after)), Value::Null);
    }

    #[test]
    fn what_is_no_such_file_tells_nothing() {
        assert!(parse(b"intr 1\n").is_none());
        assert!(parse(b"").is_none());
    }
}
