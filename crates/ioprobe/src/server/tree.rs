//! Resource usage of a whole process tree: running processes, reaped ones, and their orphans.
//!
//! A reaped process is included in the counts of the process that waited for it, all the way up to
//! the reaper. CPU time of running processes is read from their clocks, to the nanosecond; that of
//! ended ones from /proc, in ticks (10 ms), like the split into user and system time. If a process
//! ignores SIGCHLD, its ended children are counted nowhere: the kernel drops their counts.

use std::fs;

use libc::{clockid_t, pid_t};
use serde_json::{json, Value};

use crate::counters::{lines, number};
use crate::process::stragglers::processes;

const IO: [&[u8]; 6] = [
    b"rchar",
    b"wchar",
    b"syscr",
    b"syscw",
    b"read_bytes",
    b"write_bytes",
];
/// How often the tree is read again if a process ended during the reading: that process would be
/// missed, or counted twice.
const ATTEMPTS: u32 = 20;
const KIB: u64 = 1024;

/// Everything that the tree has used so far.
#[derive(Clone, Debug, Default)]
pub struct Used {
    cpu_ns: u64,
    user_ns: u64,
    sys_ns: u64,
    faults_minor: u64,
    faults_major: u64,
    /// In the order of `IO`; None if the kernel denies access.
    io: Option<[u64; IO.len()]>,
    processes: Vec<pid_t>,
}

impl Used {
    /// Read the usage of the tree below this process up to now, without the process itself.
    pub fn below(reaper: pid_t) -> Self {
        let mut found = Used::read(reaper);
        for _ in 0..ATTEMPTS {
            let again = Used::read(reaper);
            // Nothing ended between the two listings, so the earlier reading is complete; during
            // the later one something may have ended since.
            if again.processes == found.processes {
                return found;
            }
            found = again;
        }
        found
    }

    fn read(reaper: pid_t) -> Self {
        let tick_ns = tick_ns();
        let mut used = Used {
            io: Some([0; IO.len()]),
            ..Used::default()
        };
        for process in tree(reaper) {
            // The reaper itself does not count; what it has waited for belongs to the server.
            let own = u64::from(process.pid != reaper);
            if own == 1 {
                let by_ticks = process.running_ticks() * tick_ns;
                used.cpu_ns += cpu_clock_ns(process.pid).unwrap_or(by_ticks);
                used.processes.push(process.pid);
            }
            used.cpu_ns += process.ended_ticks() * tick_ns;
            used.user_ns += (own * process.utime + process.cutime) * tick_ns;
            used.sys_ns += (own * process.stime + process.cstime) * tick_ns;
            used.faults_minor += own * process.minflt + process.cminflt;
            used.faults_major += own * process.majflt + process.cmajflt;
            used.io = match (used.io, io_of(process.pid)) {
                (Some(sum), Some(more)) => {
                    let mut sum = sum;
                    for (place, more) in sum.iter_mut().zip(more) {
                        *place += more;
                    }
                    Some(sum)
                }
                _ => None,
            };
        }
        used
    }

    /// Return what was used since `before`, and the memory held now.
    pub fn since(&self, before: &Used) -> Value {
        let counted = |place: usize| match (&self.io, &before.io) {
            (Some(now), Some(then)) => Some(now[place].saturating_sub(then[place])),
            _ => None,
        };
        let held = Held::of(&self.processes);
        json!({
            "cpu_ns": self.cpu_ns.saturating_sub(before.cpu_ns),
            "user_ns": self.user_ns.saturating_sub(before.user_ns),
            "sys_ns": self.sys_ns.saturating_sub(before.sys_ns),
            "faults_minor": self.faults_minor.saturating_sub(before.faults_minor),
            "faults_major": self.faults_major.saturating_sub(before.faults_major),
            "read_bytes": counted(0),
            "written_bytes": counted(1),
            "read_calls": counted(2),
            "write_calls": counted(3),
            "fetched_bytes": counted(4),
            "dirtied_bytes": counted(5),
            "processes": self.processes.len(),
            "resident_bytes": held.resident_bytes,
            "huge_bytes": held.huge_bytes,
        })
    }
}

/// Memory that a tree holds.
struct Held {
    resident_bytes: Option<u64>,
    huge_bytes: Option<u64>,
}

impl Held {
    /// Sum up the memory. Pages shared by several processes are divided among them (Pss), so the
    /// sum is the real total. The kernel reports no such share of huge pages: there, the process
    /// that has most of them mapped counts.
    fn of(pids: &[pid_t]) -> Self {
        let (mut resident, mut reserved, mut huge) = (None, 0, 0);
        for pid in pids {
            if let Ok(text) = fs::read(format!("/proc/{pid}/smaps_rollup")) {
                let (pss, own_reserved, transparent) = memory(&text);
                resident = Some(resident.unwrap_or(0) + pss);
                reserved = own_reserved.max(reserved);
                huge = (own_reserved + transparent).max(huge);
            }
        }
        Held {
            // Pss does not include hugetlbfs pages.
            resident_bytes: resident.map(|resident: u64| resident + reserved),
            huge_bytes: resident.map(|_| huge),
        }
    }
}

/// Parse Pss, hugetlbfs pages, and transparent huge pages of any kind; in bytes.
fn memory(text: &[u8]) -> (u64, u64, u64) {
    let (mut pss, mut reserved, mut transparent) = (0, 0, 0);
    for line in lines(text) {
        let colon = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => colon,
            None => continue,
        };
        let mut words = line[colon + 1..]
            .split(|byte| *byte == b' ')
            .filter(|word| !word.is_empty());
        let bytes = words.next().and_then(number).unwrap_or(0) * KIB;
        match &line[..colon] {
            b"Pss" => pss += bytes,
            b"Shared_Hugetlb" | b"Private_Hugetlb" => reserved += bytes,
            b"AnonHugePages" | b"ShmemPmdMapped" | b"FilePmdMapped" => transparent += bytes,
            _ => {}
        }
    }
    (pss, reserved, transparent)
}

/// The fields of /proc/PID/stat that are needed here (proc_pid_stat(5)); times in ticks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    pid: pid_t,
    parent: pid_t,
    minflt: u64,
    cminflt: u64,
    majflt: u64,
    cmajflt: u64,
    utime: u64,
    stime: u64,
    cutime: u64,
    cstime: u64,
}

impl Process {
    fn running_ticks(&self) -> u64 {
        self.utime + self.stime
    }

    fn ended_ticks(&self) -> u64 {
        self.cutime + self.cstime
    }
}

/// Return this process and all below it.
fn tree(root: pid_t) -> Vec<Process> {
    let all: Vec<Process> = processes().filter_map(read).collect();
    let mut found: Vec<Process> = all.iter().filter(|p| p.pid == root).cloned().collect();
    let mut at = 0;
    while at < found.len() {
        let parent = found[at].pid;
        found.extend(all.iter().filter(|p| p.parent == parent).cloned());
        at += 1;
    }
    found
}

fn read(pid: pid_t) -> Option<Process> {
    let bytes = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse(pid, &String::from_utf8_lossy(&bytes))
}

/// Parse a stat line. The name in parentheses may contain parentheses, so parsing starts after the
/// last one.
fn parse(pid: pid_t, text: &str) -> Option<Process> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        minflt: field(7)?,
        cminflt: field(8)?,
        majflt: field(9)?,
        cmajflt: field(10)?,
        utime: field(11)?,
        stime: field(12)?,
        cutime: field(13)?,
        cstime: field(14)?,
    })
}

/// Read the CPU clock of another process (CPUCLOCK_SCHED; the id is that of
/// clock_getcpuclockid(3)).
fn cpu_clock_ns(pid: pid_t) -> Option<u64> {
    let clock = (!pid << 3 | 2) as clockid_t;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: we own the structure.
    match unsafe { libc::clock_gettime(clock, &mut time) } {
        0 => Some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        _ => None,
    }
}

fn io_of(pid: pid_t) -> Option<[u64; IO.len()]> {
    let text = fs::read(format!("/proc/{pid}/io")).ok()?;
    let mut counts = [0; IO.len()];
    for line in lines(&text) {
        for (place, name) in counts.iter_mut().zip(IO) {
            let rest = line.strip_prefix(name).and_then(|l| l.strip_prefix(b": "));
            if let Some(rest) = rest {
                *place = number(rest)?;
            }
        }
    }
    Some(counts)
}

fn tick_ns() -> u64 {
    // SAFETY: no pointers are involved.
    1_000_000_000 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_behind_any_name() {
        let line = "9 (a ) R 1 (b) S 4 9 9 0 -1 64 10 11 12 13 14 15 16 17 20 0 1 0 4242";
        let found = parse(9, line).unwrap();
        assert_eq!((found.parent, found.minflt, found.cmajflt), (4, 10, 13));
        assert_eq!((found.running_ticks(), found.ended_ticks()), (29, 33));
        assert_eq!(parse(9, "9 (x) S 1"), None);
    }

    #[test]
    fn this_process_is_in_its_own_tree_and_its_clock_is_read() {
        let own = std::process::id() as pid_t;
        assert!(tree(own).iter().any(|process| process.pid == own));
        let before = crate::clock::process_cpu_ns();
        let found = cpu_clock_ns(own).unwrap();
        assert!(before <= found && found <= crate::clock::process_cpu_ns());
    }

    #[test]
    fn pages_are_distinguished_by_kind() {
        let text =
            b"00-ff ---p 00000000 00:00 0    [rollup]\nRss: 9 kB\nPss:   4 kB\nPss_Anon: 3 kB\n\
            AnonHugePages:  2048 kB\nShared_Hugetlb:  2 kB\nPrivate_Hugetlb: 1 kB\n";
        assert_eq!(memory(text), (4 * KIB, 3 * KIB, 2048 * KIB));
    }
}
