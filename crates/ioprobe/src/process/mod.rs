//! Starting programs cheaply, ending them in time, and leaving nothing of them behind.

pub mod limit;
pub mod orphans;
pub mod program;
pub mod start;
pub mod stragglers;
