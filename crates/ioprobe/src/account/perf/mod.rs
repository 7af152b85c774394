//! Counting by perf events: the kernel writes a record of every entry and return of the commands into buffers, and we read along.
//!
//! For kernels that do not let us load BPF programs. Events are inherited by what this process starts, and by what that starts;
//! our own records are thrown away. Everything ends with the descriptors.

mod ring;
mod tasks;
mod tracefs;

use std::os::unix::io::AsRawFd;

use libc::{c_int, pid_t};

use self::ring::{parse, Event, Record, Ring};
use self::tasks::{Tasks, What};
use self::tracefs::Tracefs;
use super::call::Account;
use super::processors;
use crate::clock::monotonic_ns;
use crate::error::{last_errno, Error, Result};
use crate::syscall::process_descriptor;

const ENTER: &str = "raw_syscalls/sys_enter";
const LEAVE: &str = "raw_syscalls/sys_exit";
const SIGNAL: &str = "signal/signal_generate";
const POLL_MS: c_int = 5;
/// An event is this old at most when it can be read: until then, one of another processor may have to go before it.
const SETTLED_NS: u64 = 2_000_000;

pub struct Reading {
    kinds: Kinds,
    events: Vec<Event>,
    rings: Vec<Ring>,
    waiting: Vec<tasks::Event>,
    tasks: Tasks,
    lost: u64,
}

/// How records tell what they are of, and where their fields lie.
struct Kinds {
    enter: u64,
    leave: u64,
    signal: u64,
    signal_to: usize,
    signal_result: usize,
}

impl Reading {
    pub fn begin() -> Result<Self> {
        let tracefs = Tracefs::find()?;
        let kinds = Kinds {
            enter: tracefs.id(ENTER)?,
            leave: tracefs.id(LEAVE)?,
            signal: tracefs.id(SIGNAL)?,
            signal_to: tracefs.offset(SIGNAL, "pid")?,
            signal_result: tracefs.offset(SIGNAL, "result")?,
        };
        let (mut events, mut rings) = (Vec::new(), Vec::new());
        for processor in processors::online()? {
            let ring = Ring::over(Event::open(kinds.enter, processor, true)?)?;
            for id in [kinds.leave, kinds.signal] {
                let event = Event::open(id, processor, false)?;
                event.write_to(&ring)?;
                events.push(event);
            }
            rings.push(ring);
        }
        for event in events.iter().chain(rings.iter().map(|ring| &ring.event)) {
            event.enable()?;
        }
        Ok(Reading {
            kinds,
            events,
            rings,
            waiting: Vec::new(),
            tasks: Tasks::of(std::process::id()),
            lost: 0,
        })
    }

    /// Reads along until a process has ended; it is still to be waited for.
    pub fn follow(&mut self, pid: pid_t) -> Result<()> {
        let process = process_descriptor(pid)?;
        loop {
            let mut polled: Vec<libc::pollfd> = std::iter::once(process.as_raw_fd())
                .chain(self.rings.iter().map(Ring::descriptor))
                .map(|fd| libc::pollfd {
                    fd,
                    events: libc::POLLIN,
                    revents: 0,
                })
                .collect();
            // SAFETY: the vector is valid for its length.
            let n =
                unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, POLL_MS) };
            if n == -1 && last_errno() != libc::EINTR {
                return Err(Error::last_os("wait for perf events"));
            }
            self.drain();
            if polled[0].revents != 0 {
                return Ok(());
            }
        }
    }

    pub fn finish(mut self) -> Result<Account> {
        for event in self
            .events
            .iter()
            .chain(self.rings.iter().map(|ring| &ring.event))
        {
            event.disable()?;
        }
        self.drain();
        self.settle(u64::MAX);
        Ok(Account {
            way: "perf",
            calls: self.tasks.calls,
            lost: self.lost,
        })
    }

    fn drain(&mut self) {
        let before = monotonic_ns();
        let (kinds, waiting, lost) = (&self.kinds, &mut self.waiting, &mut self.lost);
        for ring in &mut self.rings {
            let had_room = ring.drain(|bytes| match parse(bytes) {
                Some(Record::Lost(count)) => *lost += count,
                Some(record) => waiting.extend(kinds.event(&record)),
                None => *lost += 1,
            });
            // What did not fit is told with the next record only, which may never come.
            *lost += u64::from(!had_room);
        }
        self.settle(before.saturating_sub(SETTLED_NS));
    }

    /// Takes up what happened before a time, in its order.
    fn settle(&mut self, before_ns: u64) {
        self.waiting.sort_by_key(|event| event.at_ns);
        let count = self
            .waiting
            .iter()
            .take_while(|event| event.at_ns < before_ns)
            .count();
        for event in self.waiting.drain(..count) {
            self.tasks.take(&event);
        }
    }
}

impl Kinds {
    fn event(&self, record: &Record) -> Option<tasks::Event> {
        match *record {
            Record::Fork {
                process,
                task,
                parent,
                at_ns,
            } => Some(tasks::Event {
                at_ns,
                process,
                task,
                what: What::Fork { parent },
            }),
            Record::Exit {
                process,
                task,
                at_ns,
            } => Some(tasks::Event {
                at_ns,
                process,
                task,
                what: What::Exit,
            }),
            Record::Sample {
                process,
                task,
                at_ns,
                raw,
                compat,
            } => Some(tasks::Event {
                at_ns,
                process,
                task,
                what: self.what(raw, compat)?,
            }),
            Record::Lost(_) | Record::Other => None,
        }
    }

    /// A raw record begins with its kind in 16 bits and, after 4 bytes, the number of the task.
    fn what(&self, raw: &[u8], compat: bool) -> Option<What> {
        let word = |at: usize| Some(i32::from_le_bytes(raw.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(i64::from_le_bytes(raw.get(at..at + 8)?.try_into().ok()?));
        let kind = u64::from(u16::from_le_bytes([*raw.first()?, *raw.get(1)?]));
        let global = word(4)?;
        if kind == self.enter {
            Some(What::Enter {
                number: long(8)?,
                compat,
                global,
            })
        } else if kind == self.leave {
            Some(What::Leave {
                number: long(8)?,
                returned: long(16)?,
                compat,
                global,
            })
        } else if kind == self.signal && word(self.signal_result)? == 0 {
            Some(What::Signal {
                number: word(8)?,
                to: word(self.signal_to)?,
            })
        } else {
            None
        }
    }
}
