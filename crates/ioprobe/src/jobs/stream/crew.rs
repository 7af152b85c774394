//! Several streams at once: one thread each, which all wait at a barrier before they first read the
//! clock.
//!
//! Their total counts from the first start to the last end. The rates of streams that end at
//! different times do not add up to a meaningful total.

use std::os::unix::io::OwnedFd;
use std::thread::{Builder, Scope};

use super::copying::Copying;
use super::timed::{Broken, Done, Reading, Recorders, Writing};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::jobs::gate::Gate;
use crate::jobs::stopwatch::{Span, Stopwatch};

pub enum Work {
    Read(Reading),
    Write(Writing),
    Copy(Copying),
}

/// A stream that is ready to start.
pub struct Ready {
    pub work: Work,
    pub recorders: Recorders,
    /// The name of its file or device, for messages.
    pub name: String,
}

/// A finished stream.
pub struct Ended {
    pub span: Span,
    pub done: Done,
    pub recorders: Recorders,
    /// A descriptor to close outside the measured time.
    pub open: Option<OwnedFd>,
}

impl Ready {
    pub fn new(work: Work, name: &str) -> Self {
        Ready {
            work,
            recorders: Recorders::new(),
            name: name.to_string(),
        }
    }

    fn perform(self, clock: &Clock) -> Result<Ended> {
        let Ready {
            work,
            mut recorders,
            name,
        } = self;
        let done = match work {
            Work::Read(reading) => reading.perform(clock, &mut recorders),
            Work::Write(writing) => {
                let done = writing.perform(clock, &mut recorders);
                done.map(|(span, done)| (span, done, None))
            }
            Work::Copy(copying) => {
                let done = copying.perform(clock, &mut recorders);
                done.map(|(span, done)| (span, done, None))
            }
        };
        let (span, done, open) = done.map_err(|broken| say(&broken, &name))?;
        Ok(Ended {
            span,
            done,
            recorders,
            open,
        })
    }
}

/// Run all streams at once. `start` is called when all are ready; its result is returned.
pub fn perform(
    mut streams: Vec<Ready>,
    clock: &Clock,
    start: impl FnOnce() -> Stopwatch,
) -> (Stopwatch, Result<Vec<Ended>>) {
    if streams.len() == 1 {
        let only = streams.remove(0);
        let stopwatch = start();
        return (stopwatch, only.perform(clock).map(|ended| vec![ended]));
    }
    let gate = Gate::default();
    std::thread::scope(|scope| {
        let count = streams.len();
        let mut waiting = Vec::with_capacity(count);
        let mut refused = None;
        for stream in streams {
            match begin(scope, stream, &gate, clock) {
                Ok(thread) => waiting.push(thread),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        gate.wait_for(waiting.len());
        let stopwatch = start();
        gate.open(refused.is_none());
        let mut ended = Vec::with_capacity(count);
        let mut failed = refused.map(Err);
        for thread in waiting {
            match thread.join().expect("a stream does not panic") {
                Some(Ok(one)) => ended.push(one),
                Some(Err(error)) => failed = Some(failed.unwrap_or(Err(error))),
                None => {}
            }
        }
        (stopwatch, failed.unwrap_or(Ok(ended)))
    })
}

type Thread<'scope> = std::thread::ScopedJoinHandle<'scope, Option<Result<Ended>>>;

fn begin<'scope, 'all: 'scope>(
    scope: &'scope Scope<'scope, 'all>,
    stream: Ready,
    gate: &'scope Gate,
    clock: &'scope Clock,
) -> Result<Thread<'scope>> {
    let thread = Builder::new().spawn_scoped(scope, move || {
        gate.pass().then(|| stream.perform(clock)) // None if another stream could not be started
    });
    thread.map_err(|error| {
        let errno = error.raw_os_error().unwrap_or(0);
        Error::errno("start a thread for a stream".to_string(), errno)
    })
}

fn say(broken: &Broken, what: &str) -> Error {
    let doing = format!("{} {what} at offset {}", broken.call, broken.offset);
    match broken.errno {
        0 => Error::verify(format!("{doing}: short transfer of {} bytes", broken.moved)),
        errno => Error::errno(doing, errno),
    }
}

/// Return the span from the first start to the last end.
pub fn whole(ended: &[Ended]) -> Span {
    Span {
        start: ended.iter().map(|one| one.span.start).min().unwrap_or(0),
        end: ended.iter().map(|one| one.span.end).max().unwrap_or(0),
    }
}

/// Sum up what all streams did.
pub fn sum(ended: &[Ended]) -> Done {
    let mut sum = Done::default();
    for one in ended.iter().map(|one| &one.done) {
        sum.bytes += one.bytes;
        sum.blocks += one.blocks;
        sum.short_block += one.short_block;
        sum.ended = sum.ended.max(one.ended);
        sum.flushed |= one.flushed;
    }
    sum
}
