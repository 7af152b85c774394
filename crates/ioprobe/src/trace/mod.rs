//! System call accounting for a process tree: how often each call returned, with which errors, and
//! how long it took.
//!
//! Tracing is never free, so it is never part of a timed run: when a job counts calls, its times
//! are those of a traced program. The counting is done in the kernel, by our BPF programs.

pub mod arch;
pub mod block;
pub mod bpf;
mod call;
mod names;
mod processors;
pub mod touched;

pub use self::call::Account;
