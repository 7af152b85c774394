//! Starting programs cheaply, ending them in time, and leaving nothing of them behind.

pub mod kept;
pub mod left;
pub mod limit;
pub mod program;
pub mod start;
pub mod stragglers;
