//! Accounting of system calls: how often each returned, with which errors, and how long it took, for a tree of processes.
//!
//! Tracing is never free, so nothing here is part of a timed run: a job is told to count, and then its times are those of a
//! traced program. Two ways lead to the same account: BPF, which counts in the kernel, and perf events, which hand every call
//! over to us.

pub mod block;
pub mod bpf;
mod call;
mod names;
pub mod perf;
mod processors;
pub mod touched;

use libc::pid_t;

use crate::error::{Error, Result};
use crate::wire::Accounting;

pub use self::call::Account;

/// Counting that is under way; it ends when this is dropped.
pub enum Counter {
    Bpf(bpf::Attached),
    Perf(Box<perf::Reading>),
}

impl Counter {
    /// Counts what this thread starts from now on, by the way that is asked for or the better one that is allowed.
    pub fn begin(asked: Accounting) -> Result<Option<Self>> {
        match asked {
            Accounting::No => Ok(None),
            _ if !cfg!(target_arch = "x86_64") => Err(Error::unsupported(
                "count system calls: their numbers are known for x86-64 only",
            )),
            Accounting::Bpf => bpf().map(Some).map_err(refused),
            Accounting::Perf => perf().map(Some).map_err(refused),
            Accounting::Auto => match bpf() {
                Ok(counter) => Ok(Some(counter)),
                Err(first) => match perf() {
                    Ok(counter) => Ok(Some(counter)),
                    Err(second) => Err(refused(format!("{first}; {second}"))),
                },
            },
        }
    }

    /// To be called while a process that was started is running; returns at the latest when it has ended.
    pub fn follow(&mut self, pid: pid_t) -> Result<()> {
        match self {
            Counter::Bpf(_) => Ok(()),
            Counter::Perf(reading) => reading.follow(pid),
        }
    }

    pub fn finish(self) -> Result<Account> {
        match self {
            Counter::Bpf(attached) => attached.finish(),
            Counter::Perf(reading) => reading.finish(),
        }
    }
}

fn bpf() -> std::result::Result<Counter, String> {
    bpf::Counting::load()
        .and_then(bpf::Counting::attach)
        .map(Counter::Bpf)
        .map_err(|why| format!("by BPF: {why}"))
}

fn perf() -> std::result::Result<Counter, String> {
    perf::Reading::begin()
        .map(|reading| Counter::Perf(Box::new(reading)))
        .map_err(|why| format!("by perf events: {why}"))
}

fn refused(why: String) -> Error {
    Error::unsupported(format!("count system calls {why}"))
}
