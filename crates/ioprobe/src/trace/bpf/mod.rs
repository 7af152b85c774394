//! System call counts by BPF: programs on three tracepoints, assembled here, verified by the
//! kernel, and gone with their descriptors.

mod assembler;
pub mod block;
pub mod event;
pub mod kernel;
mod programs;
pub mod recorder;
pub mod ring;
mod rows;
pub mod types;

use std::collections::BTreeMap;
use std::os::unix::io::{AsRawFd, OwnedFd};

use libc::pid_t;

use self::kernel::{load_types, Map, MapKind, MapShape, Program};
use self::programs::{Maps, Offsets};
use self::rows::Rows;
use self::types::Types;
use super::call::{Abi, Account, Call};
use super::processors;
use crate::error::{Error, Result};
use crate::sys::process_descriptor;

/// The programs, loaded but not attached.
pub struct Counting {
    tasks: Map,
    counts: Rows,
    errors: Map,
    programs: Vec<Program>,
}

/// The programs, attached. Dropping this detaches them.
pub struct Attached {
    counting: Counting,
    _links: Vec<OwnedFd>,
}

impl Counting {
    /// Create maps and programs. Fails if the kernel does not allow them or is too old (before
    /// 5.11).
    fn load() -> Result<Self> {
        let processors = processors::possible()?;
        let own_types = load_types(&types::of_map(programs::TASK_WORDS))?;
        let kernel = Types::of_kernel()?;
        let at = Offsets::of(&kernel)?;
        let shape = |kind, key, value, entries| MapShape {
            kind,
            key,
            value,
            entries,
        };
        let tasks = Map::make(
            &shape(MapKind::TaskStorage, 4, 4 * programs::TASK_WORDS, 0),
            Some(&own_types),
            processors,
        )?;
        let counts = Rows::make(programs::ROWS, processors)?;
        let by_error = shape(
            MapKind::PerProcessorHash,
            programs::ERROR_KEY,
            8,
            programs::ERRORS,
        );
        let errors = Map::make(&by_error, None, processors)?;
        let maps = Maps {
            tasks: tasks.fd.as_raw_fd(),
            counts: counts.descriptor(),
            errors: errors.fd.as_raw_fd(),
        };
        let programs = [
            ("sched_process_fork", programs::fork(maps)),
            ("sys_exit", programs::leave(maps, &at)),
            ("sys_enter", programs::enter(maps, &at)),
        ]
        .iter()
        .map(|(name, instructions)| Program::load(name, instructions, kernel.tracepoint(name)?))
        .collect::<Result<Vec<_>>>()?;
        Ok(Counting {
            tasks,
            counts,
            errors,
            programs,
        })
    }

    /// Start counting what this thread starts, from its execve on.
    fn attach(self) -> Result<Attached> {
        // Task storage is addressed by pidfd.
        let own = process_descriptor(std::process::id() as pid_t)?;
        let mut words = [0_u8; 4 * programs::TASK_WORDS as usize];
        let role = programs::ROLE as usize;
        words[role..role + 4].copy_from_slice(&programs::STARTER.to_le_bytes());
        self.tasks.update(&own.as_raw_fd().to_le_bytes(), &words)?;
        let links = self
            .programs
            .iter()
            .map(Program::attach)
            .collect::<Result<_>>()?;
        Ok(Attached {
            counting: self,
            _links: links,
        })
    }
}

impl Attached {
    /// Count the system calls of what this thread starts from now on; `unsupported` if the kernel
    /// does not allow it.
    pub fn begin() -> Result<Self> {
        Counting::load()
            .and_then(Counting::attach)
            .map_err(|why| refused("count system calls", "5.11", &why))
    }

    /// Stop counting and return the counts.
    pub fn finish(self) -> Result<Account> {
        let Attached { counting, _links } = self;
        drop(_links);
        counting.read()
    }
}

impl Counting {
    fn read(&self) -> Result<Account> {
        let mut calls: BTreeMap<(Abi, u32), Call> = BTreeMap::new();
        for number in 0..programs::BEYOND {
            let times = self.counts.read(number)?;
            if times.count() > 0 {
                let call = Call {
                    times,
                    ..Call::default()
                };
                calls.insert(named(number), call);
            }
        }
        let mut beyond = self.counts.read(programs::BEYOND)?.count();
        for key in self.errors.keys()? {
            let word =
                |at: usize| u32::from_le_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
            let (number, errno, compat) = (word(0), word(4), word(8));
            let count = self.errors.look_up(&key)?.map_or(0, |n| n.iter().sum());
            let abi = if compat == 0 {
                Abi::Native
            } else {
                Abi::Compat
            };
            let call = calls.entry((abi, number)).or_default();
            call.errors.insert(errno, count);
            if number >= programs::TABLE {
                // Beyond the tables every call fails, so its errors are its calls.
                call.times.untimed += count;
                beyond = beyond.saturating_sub(count);
            }
        }
        let missed = self
            .programs
            .iter()
            .map(Program::missed)
            .sum::<Result<u64>>()?;
        Ok(Account {
            calls,
            lost: self.counts.read(programs::LOST)?.total_ns + missed + beyond,
        })
    }
}

fn named(row: u32) -> (Abi, u32) {
    match row.checked_sub(programs::TABLE) {
        None => (Abi::Native, row),
        Some(number) => (Abi::Compat, number),
    }
}

/// Build the error that says what cannot be done here, why, and what is required. `since`: the
/// first Linux version that can.
fn refused(what: &str, since: &str, why: &Error) -> Error {
    let remedy = match why {
        Error::Os {
            errno: libc::EPERM, ..
        } => "; it needs CAP_BPF and CAP_PERFMON: run as root (a container may lack them)".into(),
        Error::Unsupported(_)
        | Error::Os {
            errno: libc::ENOENT | libc::EINVAL | libc::E2BIG | libc::ENOSYS,
            ..
        } => format!("; it needs Linux {since} or later, built with CONFIG_DEBUG_INFO_BTF"),
        _ => String::new(),
    };
    Error::unsupported(format!("{what} by BPF: {why}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_missing_and_what_to_do() {
        let said = |why: Error| {
            serde_json::to_value(refused("count requests", "5.16", &why).report()).unwrap()
        };
        assert_eq!(
            said(Error::errno("make a BPF map", libc::EPERM)),
            serde_json::json!({
                "code": "unsupported",
                "message": "count requests by BPF: make a BPF map: Operation not permitted; it needs CAP_BPF and CAP_PERFMON: \
                            run as root (a container may lack them)",
            })
        );
        for old in [
            Error::errno("read /sys/kernel/btf/vmlinux", libc::ENOENT),
            Error::errno("make a BPF map", libc::EINVAL),
            Error::unsupported("this kernel has no tracepoint block_rq_complete"),
        ] {
            let message = said(old)["message"].to_string();
            assert!(
                message.contains("it needs Linux 5.16 or later, built with CONFIG_DEBUG_INFO_BTF")
            );
        }
        let other = said(Error::errno("make a BPF map", libc::ENOMEM))["message"].to_string();
        assert!(!other.contains("it needs"), "{other}");
    }
}
