//! Accounting of system calls: how often each returned, with which errors, and how long it took, for a tree of processes.
//!
//! Tracing is never free, so nothing here is part of a timed run: a job is told to count, and then its times are those of a
//! traced program. The kernel counts by BPF programs of ours.

pub mod block;
pub mod bpf;
mod call;
mod names;
mod processors;
pub mod touched;

pub use self::call::Account;
