//! Accounting of system calls: how often each returned, with which errors, and how long it took, for a tree of processes.
//!
//! Tracing is never free, so nothing here is part of a timed run: a job is told to count, and then its times are those of a
//! traced program. Two ways lead to the same account: BPF, which counts in the kernel, and perf events, which hand every call
//! over to us.

mod bpf;
mod call;
mod names;

use crate::error::{Error, Result};
use crate::wire::Accounting;

pub use self::call::Account;

/// Counting that is under way; it ends when this is dropped.
pub enum Counter {
    Bpf(bpf::Attached),
}

impl Counter {
    /// Counts what this thread starts from now on, by the way that is asked for or the better one that is allowed.
    pub fn begin(asked: Accounting) -> Result<Option<Self>> {
        match asked {
            Accounting::No => Ok(None),
            Accounting::Auto | Accounting::Bpf => bpf().map(Some),
            Accounting::Perf => Err(Error::unsupported("count by perf")),
        }
    }

    pub fn finish(self) -> Result<Account> {
        match self {
            Counter::Bpf(attached) => attached.finish(),
        }
    }
}

fn bpf() -> Result<Counter> {
    bpf::Counting::load()
        .and_then(bpf::Counting::attach)
        .map(Counter::Bpf)
        .map_err(|why| Error::unsupported(format!("count system calls by BPF: {why}")))
}
