//! What becomes of the kernel's events, one after the other in the order of time: calls that returned.
//!
//! The rules are those of the BPF programs, but here nobody can look into a task: whether a call ended with the life of
//! its process follows from the SIGKILL or the exit_group that was seen before, or from what its task did next.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;

use crate::account::call::{Abi, Call};

const EXIT_GROUP_I386: i64 = 252;
/// What an interrupted call returns that may be begun again (include/linux/errno.h).
const RESTARTS: RangeInclusive<i64> = -516..=-512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub at_ns: u64,
    pub process: u32,
    pub task: u32,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// `global`: the task as the host numbers it.
    Enter {
        number: i64,
        compat: bool,
        global: i32,
    },
    Leave {
        number: i64,
        returned: i64,
        compat: bool,
        global: i32,
    },
    Fork {
        parent: u32,
    },
    Exit,
    /// To the task that the host numbers so.
    Signal {
        number: i32,
        to: i32,
    },
}

#[derive(Clone, Copy, Debug)]
struct Task {
    process: u32,
    /// False before the execve with which counting begins.
    counted: bool,
    newborn: bool,
    within: Option<(i64, bool, u64)>,
    /// Its last call was interrupted, and nobody knows yet whether the program lived to see it return.
    interrupted: Option<Returned>,
}

#[derive(Clone, Copy, Debug)]
struct Returned {
    call: (Abi, u32),
    ns: Option<u64>,
    returned: i64,
}

pub struct Tasks {
    starter: u32,
    tasks: HashMap<u32, Task>,
    /// Process and task as they are numbered here, by how the host numbers the task.
    numbers: HashMap<i32, (u32, u32)>,
    ended_ns: HashMap<u32, u64>,
    /// Tasks that were sent a signal: where it ends them, it does so after their call. What is sent to a process is sent to its
    /// first thread.
    signalled: HashSet<u32>,
    calls: BTreeMap<(Abi, u32), Call>,
}

impl Tasks {
    /// `starter`: the process whose children are counted, and which itself is not.
    pub fn of(starter: u32) -> Self {
        Tasks {
            starter,
            tasks: HashMap::new(),
            numbers: HashMap::new(),
            ended_ns: HashMap::new(),
            signalled: HashSet::new(),
            calls: BTreeMap::new(),
        }
    }

    pub fn take(&mut self, event: &Event) {
        match event.what {
            What::Signal { number, to } => {
                if let Some((process, task)) = self.numbers.get(&to) {
                    if number == libc::SIGKILL {
                        self.ended_ns.entry(*process).or_insert(event.at_ns);
                    } else {
                        self.signalled.insert(*task);
                    }
                }
            }
            What::Fork { parent } => self.fork(event, parent),
            What::Exit => self.exit(event),
            What::Enter {
                number,
                compat,
                global,
            } => {
                self.numbers.insert(global, (event.process, event.task));
                self.enter(event, number, compat);
            }
            What::Leave {
                number,
                returned,
                compat,
                global,
            } => {
                self.numbers.insert(global, (event.process, event.task));
                self.leave(event, number, returned, compat);
            }
        }
    }

    fn fork(&mut self, event: &Event, parent: u32) {
        let counted = if parent == self.starter {
            false
        } else {
            match self.tasks.get(&parent) {
                Some(parent) if parent.counted => true,
                _ => return,
            }
        };
        if event.process == event.task {
            self.ended_ns.remove(&event.process);
        }
        self.signalled.remove(&event.task);
        let task = Task {
            process: event.process,
            counted,
            newborn: true,
            within: None,
            interrupted: None,
        };
        self.tasks.insert(event.task, task);
    }

    /// Where a task ends and was sent no signal, another one ended it: by executing a program, or by the signal that it got.
    fn exit(&mut self, event: &Event) {
        if let Some(task) = self.tasks.remove(&event.task) {
            if self.signalled.contains(&event.task) {
                record(&mut self.calls, task.interrupted);
            }
        }
    }

    /// The calls that returned.
    pub fn finish(mut self) -> BTreeMap<(Abi, u32), Call> {
        for task in self.tasks.values() {
            record(&mut self.calls, task.interrupted);
        }
        self.calls
    }

    fn enter(&mut self, event: &Event, number: i64, compat: bool) {
        let task = match self.tasks.get_mut(&event.task) {
            Some(task) => task,
            None => return,
        };
        task.newborn = false;
        record(&mut self.calls, task.interrupted.take());
        if task.counted || is_execve(number) {
            task.within = Some((number, compat, event.at_ns));
        }
        let last = if compat {
            EXIT_GROUP_I386
        } else {
            libc::SYS_exit_group
        };
        if task.counted && number == last {
            self.ended_ns.entry(event.process).or_insert(event.at_ns);
        }
    }

    fn leave(&mut self, event: &Event, number: i64, returned: i64, compat: bool) {
        if is_execve(number) && returned == 0 {
            self.rename_second_thread(event);
        }
        let task = match self.tasks.get_mut(&event.task) {
            Some(task) => task,
            None => return,
        };
        record(&mut self.calls, task.interrupted.take());
        let newborn = std::mem::replace(&mut task.newborn, false);
        let within = task.within.take();
        if !task.counted {
            task.counted = within.is_some() && returned == 0;
            if !task.counted {
                return;
            }
        }
        if within.is_none() && newborn {
            return;
        }
        if self
            .ended_ns
            .get(&event.process)
            .map_or(false, |ended| *ended < event.at_ns)
        {
            return;
        }
        let (number, compat, began) = match within {
            Some((number, compat, began)) => (number, compat, Some(began)),
            None => (number, compat, None),
        };
        let abi = if compat { Abi::I386 } else { Abi::Native };
        let done = Some(Returned {
            call: (abi, number as u32),
            ns: began.map(|began| event.at_ns.saturating_sub(began)),
            returned,
        });
        if RESTARTS.contains(&returned) {
            task.interrupted = done;
        } else {
            record(&mut self.calls, done);
        }
    }

    /// A thread that executes a program goes on under the number of its process.
    fn rename_second_thread(&mut self, event: &Event) {
        let own = |task: &Task| task.within.map_or(false, |(number, ..)| is_execve(number));
        if self.tasks.get(&event.task).map_or(false, own) {
            return;
        }
        let before = self
            .tasks
            .iter()
            .find(|(_, task)| task.process == event.process && own(task))
            .map(|(number, _)| *number);
        if let Some(task) = before.and_then(|number| self.tasks.remove(&number)) {
            self.tasks.insert(event.task, task);
        }
    }
}

fn record(calls: &mut BTreeMap<(Abi, u32), Call>, done: Option<Returned>) {
    if let Some(done) = done {
        let call = calls.entry(done.call).or_default();
        call.record(done.ns, done.returned);
    }
}

fn is_execve(number: i64) -> bool {
    number == libc::SYS_execve || number == libc::SYS_execveat
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(events: &[(u64, u32, u32, What)]) -> BTreeMap<(Abi, u32), u64> {
        let mut tasks = Tasks::of(1);
        for (at_ns, process, task, what) in events {
            tasks.take(&Event {
                at_ns: *at_ns,
                process: *process,
                task: *task,
                what: *what,
            });
        }
        tasks
            .finish()
            .iter()
            .map(|(key, call)| (*key, call.times.count()))
            .collect()
    }

    fn enter(number: i64, task: u32) -> What {
        What::Enter {
            number,
            compat: false,
            global: task as i32,
        }
    }

    fn leave(number: i64, returned: i64, task: u32) -> What {
        What::Leave {
            number,
            returned,
            compat: false,
            global: task as i32,
        }
    }

    const READ: (Abi, u32) = (Abi::Native, 0);
    const EXECUTED: (Abi, u32) = (Abi::Native, 59);

    #[test]
    fn counting_begins_with_the_execve_of_a_child() {
        let found = seen(&[
            (1, 1, 1, enter(56, 1)),
            (2, 5, 5, What::Fork { parent: 1 }),
            (3, 5, 5, leave(56, 0, 5)),
            (4, 5, 5, enter(33, 5)),
            (5, 5, 5, leave(33, 0, 5)),
            (6, 5, 5, enter(59, 5)),
            (7, 5, 5, leave(59, 0, 5)),
            (8, 1, 1, leave(56, 5, 1)),
            (9, 5, 5, enter(0, 5)),
            (10, 5, 5, leave(0, 100, 5)),
            (11, 5, 5, enter(231, 5)),
        ]);
        assert_eq!(found, [(READ, 1), (EXECUTED, 1)].into_iter().collect());
    }

    #[test]
    fn a_call_in_which_a_process_is_killed_does_not_return() {
        let start = [
            (2, 5, 5, What::Fork { parent: 1 }),
            (6, 5, 5, enter(59, 5)),
            (7, 5, 5, leave(59, 0, 5)),
            (8, 5, 5, enter(0, 5)),
        ];
        let killed = [
            (9, 1, 1, What::Signal { number: 9, to: 5 }),
            (10, 5, 5, leave(0, -512, 5)),
            (11, 5, 5, What::Exit),
        ];
        let ended = [
            (9, 1, 1, What::Signal { number: 15, to: 5 }),
            (10, 5, 5, leave(0, -512, 5)),
        ];
        assert_eq!(
            seen(&[start, [killed[0], killed[1], killed[2], killed[2]]].concat()).get(&READ),
            None
        );
        assert_eq!(
            seen(&[&start[..], &ended[..]].concat()).get(&READ),
            Some(&1)
        );
    }

    /// A process of two threads, 5 and 6, of which the second waits in a read.
    fn with_a_waiting_thread(more: &[(u64, u32, u32, What)]) -> Option<u64> {
        let start = [
            (2, 5, 5, What::Fork { parent: 1 }),
            (6, 5, 5, enter(59, 5)),
            (7, 5, 5, leave(59, 0, 5)),
            (8, 5, 6, What::Fork { parent: 5 }),
            (9, 5, 6, enter(0, 6)),
        ];
        seen(&[&start[..], more].concat()).get(&READ).copied()
    }

    #[test]
    fn a_call_in_which_another_thread_ends_the_task_does_not_return() {
        let ended = [
            (11, 5, 6, leave(0, -512, 6)),
            (12, 5, 6, What::Exit),
            (13, 5, 5, leave(59, 0, 5)),
        ];
        let executes = [(10, 5, 5, enter(59, 5))];
        assert_eq!(
            with_a_waiting_thread(&[&executes[..], &ended].concat()),
            None
        );
        let first_is_sent = [(10, 1, 1, What::Signal { number: 15, to: 5 })];
        assert_eq!(
            with_a_waiting_thread(&[&first_is_sent[..], &ended].concat()),
            None
        );
        let itself_is_sent = [(10, 1, 1, What::Signal { number: 11, to: 6 })];
        assert_eq!(
            with_a_waiting_thread(&[&itself_is_sent[..], &ended].concat()),
            Some(1)
        );
    }

    #[test]
    fn an_interrupted_call_of_a_task_that_lives_on_counts_each_time() {
        let again = [
            (11, 5, 6, leave(0, -512, 6)),
            (12, 5, 6, enter(0, 6)),
            (13, 5, 6, leave(0, 1, 6)),
        ];
        assert_eq!(with_a_waiting_thread(&again), Some(2));
        assert_eq!(with_a_waiting_thread(&again[..1]), Some(1));
    }
}
