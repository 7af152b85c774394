//! What the server takes of processor and memory: of all processes that hold the socket on which it listens.
//!
//! Whoever started it, the socket finds it: a master and its workers share it. What works behind it over other sockets (a pool
//! of interpreters, a database) is not counted. The processes are looked for in the host's /proc, from before the probe moved to
//! a namespace of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::io::{AsRawFd, OwnedFd};

use serde_json::{json, Value};

/// A process of the server, and the nanoseconds that its threads had run.
type Spent = BTreeMap<String, u64>;

pub struct Server<'a> {
    proc: &'a OwnedFd,
    sockets: BTreeSet<String>,
    before: Spent,
}

impl<'a> Server<'a> {
    /// Who listens at this address, and what they had spent: to be called just before the timed part.
    pub fn at(address: &SocketAddr, proc: &'a OwnedFd) -> Self {
        let mut sockets = BTreeSet::new();
        for (table, v6) in [("tcp", false), ("tcp6", true)] {
            let text = fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default();
            sockets.extend(text.lines().filter_map(|line| listening(line, address, v6)));
        }
        let mut server = Server {
            proc,
            sockets,
            before: Spent::new(),
        };
        server.before = server.spent();
        server
    }

    /// What it has spent since, and what memory it holds; null where nobody was found (another machine, or no right to look).
    pub fn since(&self) -> Value {
        let after = self.spent();
        if self.before.is_empty() || after.is_empty() {
            return Value::Null;
        }
        let cpu_ns: u64 = after
            .iter()
            .map(|(pid, ns)| ns.saturating_sub(self.before.get(pid).copied().unwrap_or(0)))
            .sum();
        let gone = self.before.keys().filter(|pid| !after.contains_key(*pid));
        json!({
            "processes": after.len(),
            "gone": gone.count(),
            "cpu_ns": cpu_ns,
            "memory_bytes": self.memory(after.keys()),
        })
    }

    fn spent(&self) -> Spent {
        if self.sockets.is_empty() {
            return Spent::new();
        }
        names(&self.below(""))
            .into_iter()
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()) && self.holds(name))
            .filter_map(|pid| Some((pid.clone(), self.ran_ns(&pid)?)))
            .collect()
    }

    fn holds(&self, pid: &str) -> bool {
        let folder = self.below(&format!("{pid}/fd"));
        names(&folder).iter().any(|fd| {
            fs::read_link(format!("{folder}/{fd}"))
                .is_ok_and(|link| self.sockets.contains(&*link.to_string_lossy()))
        })
    }

    /// Of all its threads that still run.
    fn ran_ns(&self, pid: &str) -> Option<u64> {
        let folder = self.below(&format!("{pid}/task"));
        let threads = names(&folder);
        let ran = threads.iter().filter_map(|thread| {
            let text = fs::read_to_string(format!("{folder}/{thread}/schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        let ran: Vec<u64> = ran.collect();
        (!ran.is_empty()).then(|| ran.iter().sum())
    }

    /// Resident memory, where what several share is counted once: proportional set sizes. None where one may not be read.
    fn memory<'b>(&self, pids: impl Iterator<Item = &'b String>) -> Option<u64> {
        pids.map(|pid| {
            let text = fs::read_to_string(self.below(&format!("{pid}/smaps_rollup"))).ok()?;
            proportional(&text)
        })
        .sum()
    }

    fn below(&self, path: &str) -> String {
        format!("/proc/self/fd/{}/{path}", self.proc.as_raw_fd())
    }
}

fn names(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// The socket of a line of /proc/net/tcp that listens at the address, or at all, by the name that descriptors of it have.
pub fn listening(line: &str, address: &SocketAddr, v6: bool) -> Option<String> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let (host, port) = local.split_once(':')?;
    if *state != LISTEN || u16::from_str_radix(port, 16).ok()? != address.port() {
        return None;
    }
    let everywhere = host.bytes().all(|digit| digit == b'0');
    let own = match (address.ip(), v6) {
        (IpAddr::V4(ip), false) => words(&ip.octets()),
        (IpAddr::V4(ip), true) => words(&ip.to_ipv6_mapped().octets()),
        (IpAddr::V6(ip), true) => words(&ip.octets()),
        (IpAddr::V6(_), false) => return None,
    };
    (everywhere || host == own).then(|| format!("socket:[{inode}]"))
}

/// An address as the kernel prints it: in words of the machine's own byte order.
fn words(octets: &[u8]) -> String {
    octets
        .chunks(4)
        .map(|word| {
            let word: [u8; 4] = word.try_into().unwrap_or_default();
            format!("{:08X}", u32::from_ne_bytes(word))
        })
        .collect()
}

/// `Pss` of a smaps_rollup, in bytes.
pub fn proportional(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_found_by_address_and_port() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1";
        let found = |line: &str, address: &str, v6| listening(line, &address.parse().unwrap(), v6);
        let socket = Some("socket:[4711]".to_string());
        if cfg!(target_endian = "little") {
            assert_eq!(found(line, "127.0.0.1:8080", false), socket);
        }
        assert_eq!(found(line, "127.0.0.2:8080", false), None);
        assert_eq!(found(line, "127.0.0.1:8081", false), None);
        assert_eq!(
            found(&line.replace(" 0A ", " 01 "), "127.0.0.1:8080", false),
            None
        );
        let any = line.replace("0100007F", &"0".repeat(32));
        assert_eq!(found(&any, "127.0.0.1:8080", true), socket);
        assert_eq!(found("  sl  local_address", "127.0.0.1:8080", false), None);
    }

    #[test]
    fn memory_is_the_proportional_one() {
        let text = "55-7f ---p 00:00 0 [rollup]\nRss:  900 kB\nPss:     12 kB\nPss_Dirty: 3 kB\n";
        assert_eq!(proportional(text), Some(12 * 1024));
        assert_eq!(proportional("Rss: 1 kB"), None);
    }
}
