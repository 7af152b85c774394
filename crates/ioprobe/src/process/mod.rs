//! Starting programs cheaply, ending them on time, and cleaning up what they leave behind.

pub mod limit;
pub mod orphans;
pub mod program;
pub mod start;
pub mod stragglers;
