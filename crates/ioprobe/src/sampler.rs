//! Samples the machine during a run: CPUs, memory and page cache, and devices, at a fixed period.
//!
//! It is meant to run in a separate probe next to the one that works: a thread here would be in the
//! working probe's process. Memory is allocated before the first sample. When it is full, every
//! second sample is dropped and the period doubles, so that a run of any length fits. Nothing is
//! computed here: the columns are the kernel's counters at each moment.

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{json, Map, Value};

use crate::clock::monotonic_ns;
use crate::counters::devices::{open_stat, parse, BUSY_MS, READ_SECTORS, SECTOR, WRITTEN_SECTORS};
use crate::counters::processors::spent;
use crate::counters::{lines, number};
use crate::error::{Doing, Error, Result};
use crate::protocol::SampleStart;

/// Number of samples kept; a stored run may hold some 4,000 numbers in total.
const MOST: usize = 192;
const MOST_DEVICES: usize = 4;
const PERIODS_MS: std::ops::RangeInclusive<u64> = 10..=60_000;

const CPU: [&str; 5] = [
    "cpu_user_ns",
    "cpu_sys_ns",
    "cpu_idle_ns",
    "cpu_iowait_ns",
    "cpu_steal_ns",
];
/// Lines of /proc/meminfo, in KiB.
const MEMORY: [(&[u8], &str); 4] = [
    (b"MemAvailable", "available_kib"),
    (b"Cached", "cached_kib"),
    (b"Dirty", "dirty_kib"),
    (b"Writeback", "write_back_kib"),
];
const OF_DEVICE: [&str; 3] = ["read_bytes", "write_bytes", "busy_ns"];

#[derive(Clone, Copy)]
struct Sample {
    at_ns: u64,
    cpu: [u64; CPU.len()],
    memory: [u64; MEMORY.len()],
    devices: [[u64; OF_DEVICE.len()]; MOST_DEVICES],
}

/// The files to read, opened before the first sample.
struct Sources {
    cpu: File,
    memory: File,
    devices: Vec<File>,
    tick_ns: u64,
}

/// A thread that takes samples until it is stopped.
pub struct Sampler {
    stop_signal: Arc<(Mutex<bool>, Condvar)>,
    thread: JoinHandle<Vec<Sample>>,
    names: Vec<String>,
}

impl Sampler {
    pub fn start(request: &SampleStart) -> Result<Self> {
        if !PERIODS_MS.contains(&request.period_ms) || request.devices.len() > MOST_DEVICES {
            return Err(Error::bad(format!(
                "sample_start: expected a period of {} to {} ms and at most {MOST_DEVICES} devices, found {} ms and {}",
                PERIODS_MS.start(),
                PERIODS_MS.end(),
                request.period_ms,
                request.devices.len()
            )));
        }
        let sources = Sources::open(&request.devices)?;
        let room = Vec::with_capacity(MOST);
        let stop_signal = Arc::new((Mutex::new(false), Condvar::new()));
        let (signal, period) = (
            stop_signal.clone(),
            Duration::from_millis(request.period_ms),
        );
        let thread = std::thread::Builder::new()
            .name("sampler".to_string())
            .spawn(move || sample(&sources, room, period, &signal))
            .doing(|| "start a sampler")?;
        Ok(Sampler {
            stop_signal,
            thread,
            names: request.devices.clone(),
        })
    }

    /// Stop sampling, after one last sample now.
    pub fn stop(self) -> Result<Value> {
        if let Ok(mut stop) = self.stop_signal.0.lock() {
            *stop = true;
        }
        self.stop_signal.1.notify_one();
        let samples = self
            .thread
            .join()
            .map_err(|_| Error::verify("the sampler stopped unexpectedly"))?;
        Ok(columns(&samples, &self.names))
    }
}

fn sample(
    sources: &Sources,
    mut samples: Vec<Sample>,
    mut period: Duration,
    stop_signal: &(Mutex<bool>, Condvar),
) -> Vec<Sample> {
    keep_to_one_side();
    let mut due = Instant::now();
    loop {
        samples.extend(sources.read());
        if samples.len() >= MOST - 1 {
            halve(&mut samples);
            period *= 2;
        }
        due += period;
        let mut stop = match stop_signal.0.lock() {
            Ok(stop) => stop,
            Err(_) => return samples,
        };
        while !*stop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            stop = match stop_signal.1.wait_timeout(stop, left) {
                Ok((stop, _)) => stop,
                Err(_) => return samples,
            };
        }
        if *stop {
            samples.extend(sources.read());
            return samples;
        }
        due = due.max(Instant::now() - period); // do not sample in a burst after a suspend
    }
}

/// Keep the first, third, fifth ... sample.
fn halve<T: Copy>(samples: &mut Vec<T>) {
    let kept = samples.len().div_ceil(2);
    for place in 0..kept {
        samples[place] = samples[2 * place];
    }
    samples.truncate(kept);
}

/// Pin this thread to the last CPU that we may use, if there are several: work mostly starts on the
/// first ones.
fn keep_to_one_side() {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    let last = (0..CpuSet::MAX_CPU).rev().find(|cpu| allowed.is_set(*cpu));
    if let Some(cpu) = last {
        let mut one = CpuSet::new();
        one.set(cpu);
        let _ = sched_setaffinity(None, &one);
    }
}

impl Sources {
    fn open(devices: &[String]) -> Result<Self> {
        let file = |path: &str| File::open(path).doing(|| format!("open {path}"));
        let hz = rustix::param::clock_ticks_per_second().max(1);
        Ok(Sources {
            cpu: file("/proc/stat")?,
            memory: file("/proc/meminfo")?,
            devices: devices
                .iter()
                .map(|name| open_stat(name))
                .collect::<Result<_>>()?,
            tick_ns: 1_000_000_000 / hz,
        })
    }

    /// Take one sample. None if a file is gone, as with a removed device.
    fn read(&self) -> Option<Sample> {
        let mut room = [0; 4096];
        let mut found = Sample {
            at_ns: monotonic_ns(),
            cpu: [0; CPU.len()],
            memory: [0; MEMORY.len()],
            devices: [[0; OF_DEVICE.len()]; MOST_DEVICES],
        };
        let n = self.cpu.read_at(&mut room, 0).ok()?;
        let ticks = processors(&room[..n])?;
        found.cpu = ticks.map(|ticks| ticks.wrapping_mul(self.tick_ns));
        let n = self.memory.read_at(&mut room, 0).ok()?;
        found.memory = memory(&room[..n]);
        for (place, file) in found.devices.iter_mut().zip(&self.devices) {
            let n = file.read_at(&mut room, 0).ok()?;
            let stat = parse(&room[..n])?;
            *place = [
                stat[READ_SECTORS].wrapping_mul(SECTOR),
                stat[WRITTEN_SECTORS].wrapping_mul(SECTOR),
                stat[BUSY_MS].wrapping_mul(1_000_000),
            ];
        }
        Some(found)
    }
}

/// Parse the first line of /proc/stat.
fn processors(text: &[u8]) -> Option<[u64; CPU.len()]> {
    spent(lines(text).next()?.strip_prefix(b"cpu ")?)
}

fn memory(text: &[u8]) -> [u64; MEMORY.len()] {
    let mut found = [0; MEMORY.len()];
    for line in lines(text) {
        for (place, (name, _)) in found.iter_mut().zip(&MEMORY) {
            let rest = line.strip_prefix(*name).and_then(|l| l.strip_prefix(b":"));
            if let Some(rest) = rest {
                let mut words = rest.split(|byte| *byte == b' ').filter(|w| !w.is_empty());
                *place = words.next().and_then(number).unwrap_or(0);
            }
        }
    }
    found
}

fn columns(samples: &[Sample], names: &[String]) -> Value {
    let column = |of: &dyn Fn(&Sample) -> u64| json!(samples.iter().map(of).collect::<Vec<_>>());
    let mut found = Map::new();
    found.insert("at_ns".to_string(), column(&|s| s.at_ns));
    for (place, name) in CPU.iter().enumerate() {
        found.insert(name.to_string(), column(&|s| s.cpu[place]));
    }
    for (place, (_, name)) in MEMORY.iter().enumerate() {
        found.insert(name.to_string(), column(&|s| s.memory[place]));
    }
    let devices: Map<String, Value> = names
        .iter()
        .enumerate()
        .map(|(device, name)| {
            let own = OF_DEVICE
                .iter()
                .enumerate()
                .map(|(place, what)| (what.to_string(), column(&|s| s.devices[device][place])));
            (name.clone(), Value::Object(own.collect()))
        })
        .collect();
    found.insert("devices".to_string(), Value::Object(devices));
    Value::Object(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_added_up_by_what_they_did() {
        let text = b"cpu  10 1 20 300 40 2 3 5 0 0\ncpu0 1 1 1 1 1 1 1 1\n";
        assert_eq!(processors(text), Some([11, 25, 300, 40, 5]));
        assert_eq!(processors(b"intr 1\n"), None);
    }

    #[test]
    fn memory_is_found_by_whole_names() {
        let text = b"MemTotal: 9 kB\nMemAvailable:   8 kB\nCached:   7 kB\nSwapCached: 6 kB\nDirty: 5 kB\nWriteback:  4 kB\nWritebackTmp: 3 kB\n";
        assert_eq!(memory(text), [8, 7, 5, 4]);
    }

    #[test]
    fn a_device_is_sampled_in_bytes_and_nanoseconds() {
        let path = format!("/tmp/ioprobe-test-{}-sampler", std::process::id());
        std::fs::write(&path, "1 2 3 4 5 6 7 8 9 10 11\n").unwrap();
        let sources = Sources {
            cpu: File::open("/proc/stat").unwrap(),
            memory: File::open("/proc/meminfo").unwrap(),
            devices: vec![File::open(&path).unwrap()],
            tick_ns: 10_000_000,
        };
        std::fs::remove_file(path).unwrap();
        // 3 and 7 sectors of 512 bytes, 10 ms
        let found = sources.read().unwrap();
        assert_eq!(found.devices[0], [1536, 3584, 10_000_000]);
    }

    #[test]
    fn half_of_the_samples_are_every_second_one_from_the_first_on() {
        let mut odd = vec![0, 1, 2, 3, 4];
        halve(&mut odd);
        assert_eq!(odd, [0, 2, 4]);
        let mut even = vec![0, 1, 2, 3];
        halve(&mut even);
        assert_eq!(even, [0, 2]);
    }
}
