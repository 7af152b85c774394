//! Counting by perf events: the kernel writes a record of every entry and return of the commands into buffers, and we read along.
//!
//! For kernels that do not let us load BPF programs. Events are inherited by what this process starts, and by what that starts;
//! our own records are thrown away. Everything ends with the descriptors.

mod buffer;
mod record;
mod ring;
pub mod sequence;
mod tasks;
pub mod tracefs;

use std::env;
use std::os::unix::io::AsRawFd;

use libc::{c_int, pid_t};

use self::buffer::PAGE;
use self::ring::{Event, Ring};
use self::sequence::{Kinds, Sequence};
use self::tracefs::Tracefs;
use super::call::Account;
use super::processors;
use crate::clock::monotonic_ns;
use crate::error::{last_errno, Error, Result};
use crate::syscall::process_descriptor;

const ENTER: &str = "raw_syscalls/sys_enter";
const LEAVE: &str = "raw_syscalls/sys_exit";
const SIGNAL: &str = "signal/signal_generate";
/// The environment's word for how many bytes of records there is room for at each processor, and what there is without it.
const RING: &str = "IOPROBE_RING_BYTES";
const RING_BYTES: usize = 8 << 20;
const MOST_RING_BYTES: usize = 1 << 30;
const POLL_MS: c_int = 5;
/// An event is this old at most when it can be read: until then, one of another processor may have to go before it.
const SETTLED_NS: u64 = 2_000_000;

pub struct Reading {
    events: Vec<Event>,
    rings: Vec<Ring>,
    taken: Vec<u8>,
    sequence: Sequence,
}

impl Reading {
    pub fn begin() -> Result<Self> {
        let ring_bytes = ring_bytes()?;
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
            let open = |id, with_tasks| Event::open(id, processor, with_tasks, ring_bytes / 4);
            let ring = Ring::over(open(kinds.enter, true)?, ring_bytes)?;
            for id in [kinds.leave, kinds.signal] {
                let event = open(id, false)?;
                event.write_to(&ring)?;
                events.push(event);
            }
            rings.push(ring);
        }
        for event in events.iter().chain(rings.iter().map(|ring| &ring.event)) {
            event.enable()?;
        }
        Ok(Reading {
            events,
            rings,
            taken: Vec::new(),
            sequence: Sequence::of(kinds, std::process::id()),
        })
    }

    /// Reads along until a process has ended; it is still to be waited for.
    pub fn follow(&mut self, pid: pid_t) -> Result<()> {
        let process = process_descriptor(pid)?;
        let mut polled: Vec<libc::pollfd> = std::iter::once(process.as_raw_fd())
            .chain(self.rings.iter().map(Ring::descriptor))
            .map(|fd| libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            })
            .collect();
        loop {
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
        Ok(self.sequence.finish())
    }

    fn drain(&mut self) {
        let before = monotonic_ns();
        for ring in &mut self.rings {
            self.taken.clear();
            let had_room = ring.take_out(&mut self.taken);
            self.sequence.lose(u64::from(!had_room));
            self.sequence.take(&self.taken);
        }
        self.sequence.settle(before.saturating_sub(SETTLED_NS));
    }
}

fn ring_bytes() -> Result<usize> {
    let asked = match env::var_os(RING) {
        None => return Ok(RING_BYTES),
        Some(word) => word,
    };
    let bytes: Option<usize> = asked.to_str().and_then(|word| word.parse().ok());
    bytes
        .filter(|bytes| bytes.is_power_of_two() && (PAGE..=MOST_RING_BYTES).contains(bytes))
        .ok_or_else(|| {
            Error::bad(format!(
                "read {RING}: wanted a power of two from {PAGE} to {MOST_RING_BYTES}, found {asked:?}"
            ))
        })
}
