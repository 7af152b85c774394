//! Records of all buffers, put in the order of time, and what is lost on the way.

use super::record::{records, Record};
use super::tasks::{Event, Tasks, What};
use crate::account::call::Account;

/// How records tell what they are of, and where their fields lie.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    pub enter: u64,
    pub leave: u64,
    pub signal: u64,
    pub signal_to: usize,
    pub signal_result: usize,
}

pub struct Sequence {
    kinds: Kinds,
    waiting: Vec<Event>,
    tasks: Tasks,
    lost: u64,
}

impl Sequence {
    /// `starter`: the process whose children are counted.
    pub fn of(kinds: Kinds, starter: u32) -> Self {
        Sequence {
            kinds,
            waiting: Vec::new(),
            tasks: Tasks::of(starter),
            lost: 0,
        }
    }

    /// Whole records of one buffer, as the kernel wrote them; what is damaged counts as lost.
    pub fn take(&mut self, bytes: &[u8]) {
        for record in records(bytes) {
            match record.and_then(|record| self.kinds.seen(&record)) {
                Some(Seen::Event(event)) => self.waiting.push(event),
                Some(Seen::Lost(count)) => self.lose(count),
                Some(Seen::Nothing) => {}
                None => self.lose(1),
            }
        }
    }

    pub fn lose(&mut self, count: u64) {
        self.lost = self.lost.saturating_add(count);
    }

    /// Takes up what happened before a time, in its order.
    pub fn settle(&mut self, before_ns: u64) {
        self.waiting.sort_by_key(|event| event.at_ns);
        let count = self
            .waiting
            .partition_point(|event| event.at_ns < before_ns);
        for event in self.waiting.drain(..count) {
            self.tasks.take(&event);
        }
    }

    pub fn finish(mut self) -> Account {
        self.settle(u64::MAX);
        Account {
            way: "perf",
            calls: self.tasks.finish(),
            lost: self.lost,
        }
    }
}

/// What a record means to us.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Event(Event),
    Lost(u64),
    Nothing,
}

impl Kinds {
    /// None where the record is too short for what it should hold, or of none of our events.
    fn seen(&self, record: &Record) -> Option<Seen> {
        let (at_ns, process, task, what) = match *record {
            Record::Fork {
                process,
                task,
                parent,
                at_ns,
            } => (at_ns, process, task, What::Fork { parent }),
            Record::Exit {
                process,
                task,
                at_ns,
            } => (at_ns, process, task, What::Exit),
            Record::Sample {
                process,
                task,
                at_ns,
                raw,
                compat,
            } => match self.what(raw, compat)? {
                Some(what) => (at_ns, process, task, what),
                None => return Some(Seen::Nothing),
            },
            Record::Lost(count) => return Some(Seen::Lost(count)),
            Record::Other => return Some(Seen::Nothing),
        };
        Some(Seen::Event(Event {
            at_ns,
            process,
            task,
            what,
        }))
    }

    /// A raw record begins with its kind in 16 bits and, after 4 bytes, the number of the task. A signal that was not sent
    /// after all is nothing.
    fn what(&self, raw: &[u8], compat: bool) -> Option<Option<What>> {
        let word = |at: usize| Some(i32::from_le_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(i64::from_le_bytes(raw.get(at..at + 8)?.try_into().ok()?));
        let kind = u64::from(u16::from_le_bytes([*raw.first()?, *raw.get(1)?]));
        let global = word(4)?;
        if kind == self.enter {
            Some(Some(What::Enter {
                number: long(8)?,
                compat,
                global,
            }))
        } else if kind == self.leave {
            Some(Some(What::Leave {
                number: long(8)?,
                returned: long(16)?,
                compat,
                global,
            }))
        } else if kind == self.signal {
            let (number, to) = (word(8)?, word(self.signal_to)?);
            let sent = word(self.signal_result)? == 0;
            Some(sent.then_some(What::Signal { number, to }))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: Kinds = Kinds {
        enter: 1,
        leave: 2,
        signal: 3,
        signal_to: 36,
        signal_result: 44,
    };

    fn account(bytes: &[u8]) -> Account {
        let mut sequence = Sequence::of(KINDS, 1);
        sequence.take(bytes);
        sequence.finish()
    }

    fn kept(name: &str) -> Vec<u8> {
        let cases = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fuzz/cases/records"
        );
        std::fs::read(format!("{cases}/{name}")).unwrap()
    }

    /// By name, as told: how many, and how many of them failed.
    fn counts(account: &Account) -> Vec<(String, u64, u64)> {
        let told = account.to_json();
        let calls = told["calls"].as_object().unwrap();
        let sum = |errors: &serde_json::Value| {
            let counts = errors.as_object().unwrap().values();
            counts.filter_map(|count| count.as_u64()).sum()
        };
        calls
            .iter()
            .map(|(name, call)| {
                let count = call["count"].as_u64().unwrap();
                (name.clone(), count, sum(&call["errors"]))
            })
            .collect()
    }

    /// A child that executes a program, reads, opens what is not there, writes as 32-bit programs do, is turned down by
    /// seccomp, has a child of its own that is killed in its read, and ends.
    #[test]
    fn calls_that_returned_are_counted_from_the_bytes() {
        let account = account(&kept("made"));
        let wanted = [
            ("execve", 1, 0),
            ("getppid", 1, 1),
            ("open", 1, 1),
            ("read", 1, 0),
            ("write", 1, 0),
            ("write@i386", 1, 0),
        ];
        let wanted = wanted.map(|(name, count, failed)| (name.to_string(), count, failed));
        assert_eq!((counts(&account), account.lost), (wanted.to_vec(), 0));
    }

    #[test]
    fn what_the_kernel_says_is_lost_is_lost() {
        assert_eq!(account(&kept("lost")).lost, 3);
    }

    #[test]
    fn bytes_that_end_within_a_record_say_so() {
        let whole = kept("made");
        let mut ends = vec![0];
        while let Some(size) = whole.get(ends[ends.len() - 1] + 6) {
            ends.push(ends[ends.len() - 1] + usize::from(*size)); // all are shorter than 256
        }
        assert_eq!((ends.len(), ends[ends.len() - 1]), (22, whole.len()));
        for length in 0..=whole.len() {
            let lost = u64::from(!ends.contains(&length));
            assert_eq!(account(&whole[..length]).lost, lost, "{length}");
        }
    }

    #[test]
    fn a_record_without_a_length_or_beyond_its_end_or_with_too_much_in_it_is_lost() {
        for name in ["no-length", "too-long", "raw-of-4-gib"] {
            assert_eq!(account(&kept(name)).lost, 1, "{name}");
        }
    }

    #[test]
    fn records_of_two_buffers_are_taken_in_the_order_of_time() {
        let whole = kept("made");
        let (mut sequence, mut at) = (Sequence::of(KINDS, 1), 0);
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        while at < whole.len() {
            let size = usize::from(whole[at + 6]);
            even.extend(&whole[at..at + size]);
            std::mem::swap(&mut even, &mut odd);
            at += size;
        }
        sequence.take(&odd);
        sequence.take(&even);
        assert_eq!(counts(&sequence.finish()), counts(&account(&whole)));
    }
}
