//! The `rebuild` job: md rebuilds a disk of an array, timed from the start of the rebuild until the
//! array is whole.
//!
//! The disk was added before, with the rebuild frozen. Progress and speed are read from sysfs every
//! millisecond. Optionally a load runs meanwhile, on one random block after the other of a file of
//! the lab.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{scope, sleep};
use std::time::Duration;

use serde_json::{json, Value};

use super::stopwatch::{Span, Stopwatch};
use super::stretch::Stretch;
use super::usage::UsageScope;
use super::watch::Watch;
use crate::clock::{monotonic_ns, Clock};
use crate::counters::devices::Counters;
use crate::error::{Doing, Error, Result};
use crate::fileset::Registry;
use crate::protocol::{Common, RebuildJob, RebuildLoad};

const LOOKS_EVERY: Duration = Duration::from_millis(1);
const SECTOR: u64 = 512;
const BLOCK: usize = 4096;
const MOST_PARTS: u64 = 1000;

/// The state of the array, as md reports it in sysfs.
struct ArrayState {
    /// Sectors done and in total, during a rebuild.
    done: Option<(u64, u64)>,
    whole: bool,
}

pub fn run(
    (common, own): (Common, RebuildJob),
    registry: &mut Registry,
    (clock, stretch): (&Clock, &mut Stretch),
) -> Result<Value> {
    check(&own)?;
    let folder = format!("/sys/block/{}/md", own.array);
    let attribute = |name: &str| -> Result<String> {
        let path = format!("{folder}/{name}");
        let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
        Ok(text.trim().to_string())
    };
    let file = match own.load {
        RebuildLoad::None => None,
        _ => Some(open_loaded(&common, registry)?),
    };
    let limit_ns = (own.timeout_s * 1e9) as u64;
    let (over, loaded) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut marks: Vec<u64> = Vec::with_capacity(own.parts as usize);
    let (mut announced_ns, mut sectors) = (None, 0);
    let mut watch = Watch::begin(Counters::open(&common.devices)?, common.peer.as_deref())?;
    let (stopwatch, span, worked) = scope(|threads| {
        let loading = file.as_ref().map(|(file, blocks)| {
            let writes = own.load == RebuildLoad::Write;
            let (over, loaded) = (&over, &loaded);
            threads.spawn(move || load(file, *blocks, writes, over, loaded))
        });
        let stopwatch = Stopwatch::start(UsageScope::ThisThread);
        let (start, began_ns) = (clock.ticks(), monotonic_ns());
        let worked = (|| -> Result<()> {
            let path = format!("{folder}/sync_action");
            fs::write(&path, "idle").doing(|| format!("let {} begin: write {path}", own.array))?;
            loop {
                let now = ArrayState {
                    done: progress(&attribute("sync_completed")?),
                    whole: attribute("degraded")? == "0" && attribute("sync_action")? == "idle",
                };
                let elapsed = monotonic_ns() - began_ns;
                if let Some((done, all)) = now.done {
                    sectors = all;
                    while (marks.len() as u64) + 1 < own.parts
                        && done * own.parts >= all * (marks.len() as u64 + 1)
                    {
                        marks.push(elapsed);
                    }
                    if announced_ns.is_none() && done as f64 >= own.announced_at * all as f64 {
                        // In KiB/s. With the remaining bytes it gives the finish time that
                        // /proc/mdstat estimates.
                        let rate: u64 = attribute("sync_speed")?.parse().unwrap_or(0);
                        let left = (all - done) * SECTOR;
                        announced_ns = (rate > 0)
                            .then(|| elapsed + (left as f64 / (rate * 1024) as f64 * 1e9) as u64);
                    }
                }
                if now.whole {
                    return Ok(());
                }
                if elapsed > limit_ns {
                    return Err(Error::verify(format!(
                        "rebuild {}: not complete after {} s: {} of {} disks missing, {}",
                        own.array,
                        own.timeout_s,
                        attribute("degraded")?,
                        attribute("raid_disks")?,
                        attribute("sync_action")?
                    )));
                }
                sleep(LOOKS_EVERY);
            }
        })();
        let span = Span {
            start,
            end: clock.ticks(),
        };
        over.store(true, Ordering::SeqCst);
        let ended = loading.map(|thread| thread.join());
        let loaded = match ended {
            Some(Ok(Err(error))) => Err(error).doing(|| "load the array during the rebuild"),
            Some(Err(_)) => Err(Error::verify(
                "the load on the array stopped before the rebuild ended".to_string(),
            )),
            _ => Ok(()),
        };
        (stopwatch, span, worked.and(loaded))
    });
    let timed = stopwatch.stop(&span, |whole| whole, (clock, stretch), &common);
    watch.end()?;
    worked?;
    let answer = timed.answer(&watch, common.sync_after.as_deref())?;
    answer.with(json!({
        "rebuild_ns": clock.ns_of(span.ticks()),
        "parts_ns": marks,
        "bytes": sectors * SECTOR,
        "announced_ns": announced_ns,
        "load_operations": loaded.into_inner(),
    }))
}

fn check(own: &RebuildJob) -> Result<()> {
    let refuse = |text: String| Err(Error::bad(format!("request rebuild: {text}")));
    if own.array.is_empty() || own.array.contains('/') || own.array.starts_with('.') {
        return refuse(format!(
            "array: expected a name from /sys/block, found {:?}",
            own.array
        ));
    }
    if !(1..=MOST_PARTS).contains(&own.parts) {
        return refuse(format!(
            "parts: expected 1 to {MOST_PARTS}, found {}",
            own.parts
        ));
    }
    if !(own.timeout_s > 0.0 && own.timeout_s <= 86_400.0) {
        return refuse(format!(
            "timeout_s: expected more than 0 and at most a day, found {}",
            own.timeout_s
        ));
    }
    if !(0.0..=1.0).contains(&own.announced_at) {
        return refuse(format!(
            "announced_at: expected a share from 0 to 1, found {}",
            own.announced_at
        ));
    }
    Ok(())
}

/// Parse "N / M" (done / total); None for "none", when no rebuild is running.
fn progress(text: &str) -> Option<(u64, u64)> {
    let (done, all) = text.split_once('/')?;
    let (done, all) = (done.trim().parse().ok()?, all.trim().parse().ok()?);
    (all > 0).then_some((done, all))
}

/// Open the first file of the set with O_DIRECT; returns it with its size in blocks.
fn open_loaded(common: &Common, registry: &mut Registry) -> Result<(fs::File, u64)> {
    let name = common
        .set
        .as_deref()
        .ok_or_else(|| Error::bad("request rebuild: a load needs a file set"))?;
    let set = registry.get(name)?;
    let first = set
        .select_in(common.view.as_deref(), &common.files)?
        .first()
        .copied()
        .ok_or_else(|| Error::bad("request rebuild: a load needs a file"))?;
    let path = set.path(first);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .doing(|| format!("open {path}"))?;
    let blocks = file.metadata().doing(|| format!("stat {path}"))?.len() / BLOCK as u64;
    if blocks == 0 {
        return Err(Error::bad(format!(
            "request rebuild: {path} is smaller than one block"
        )));
    }
    Ok((file, blocks))
}

#[repr(align(4096))]
struct Block([u8; BLOCK]);

/// Read one random block after the other until the rebuild is over. With `writes`, write each block
/// back unchanged, so that the file stays the same.
fn load(
    file: &fs::File,
    blocks: u64,
    writes: bool,
    over: &AtomicBool,
    done: &AtomicU64,
) -> io::Result<()> {
    let mut block = Block([0; BLOCK]);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while !over.load(Ordering::SeqCst) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let at = state % blocks * BLOCK as u64;
        file.read_exact_at(&mut block.0, at)?;
        if writes {
            file.write_all_at(&block.0, at)?;
        }
        done.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_two_numbers_or_none() {
        assert_eq!(progress("128 / 4096"), Some((128, 4096)));
        assert_eq!(progress("none"), None);
        assert_eq!(progress("0 / 0"), None);
        assert_eq!(progress("delayed"), None);
    }
}
