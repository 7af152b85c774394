//! The target verbs: everything by which knobs, caches and places act on this machine.

pub mod age;
pub mod device;
pub mod files;
pub mod image;
pub mod loop_device;
pub mod loop_table;
pub mod mount;
pub mod remove;
pub mod run;
pub mod tally;
