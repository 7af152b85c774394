//! Latencies of a device's requests by kind, from creation to completion.
//!
//! As with system calls, a traced run is not timed: tracing needs separate repetitions.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;

use serde_json::Value;

use super::bpf::block::{refused, Watching, KINDS};
use super::bpf::kernel::Gate;
use crate::error::{Doing, Error, Result};
use crate::protocol::value;

thread_local! {
    /// The gate of the requests being counted; without it none are.
    static GATE: RefCell<Option<Rc<Gate>>> = const { RefCell::new(None) };
}

/// Open or close the gate, if requests are to be counted at all, and return whether they are. This
/// keeps out what a job does before its work and what it verifies afterwards.
pub fn counting(open: bool) -> bool {
    GATE.with(|gate| {
        let gate = gate.borrow();
        if let Some(gate) = gate.as_ref() {
            gate.set(open);
        }
        gate.is_some()
    })
}

/// Counts the requests of some devices, while this lives and `counting` is on.
pub struct Requests(Vec<(String, Watching)>);

impl Drop for Requests {
    fn drop(&mut self) {
        GATE.with(|gate| *gate.borrow_mut() = None);
    }
}

impl Requests {
    /// Count the requests of whole devices whenever `counting` is on.
    pub fn begin(devices: &[String]) -> Result<Self> {
        let gate = Rc::new(Gate::make().map_err(refused)?);
        let watch = |name: &String| {
            let (major, minor) = number(name)?;
            Ok((name.clone(), Watching::begin(major, minor, &gate)?))
        };
        let watching = devices.iter().map(watch).collect::<Result<_>>()?;
        GATE.with(|known| *known.borrow_mut() = Some(gate));
        Ok(Requests(watching))
    }

    /// Return the counts by device and kind: `count`, `total_ns`, `untimed`, `histogram` (`[highest
    /// ns of the bar, count]`), without kinds that had no request. Also return how many completions
    /// were missed, which may have been of other devices.
    pub fn counted(&self) -> Result<(Value, u64)> {
        let (mut found, mut lost) = (BTreeMap::new(), 0);
        for (name, watching) in &self.0 {
            let kinds: BTreeMap<_, _> = (KINDS.iter().zip(watching.read()?))
                .filter(|(_, times)| times.count() > 0)
                .map(|(kind, times)| (kind, times.report()))
                .collect();
            found.insert(name, kinds);
            lost += watching.missed()?;
        }
        Ok((value(found)?, lost))
    }
}

fn number(name: &str) -> Result<(u32, u32)> {
    if name.is_empty() || name.contains('/') || name.starts_with('.') {
        return Err(Error::bad(format!(
            "devices: expected a name from /sys/block, found {name:?}"
        )));
    }
    let path = format!("/sys/block/{name}/dev");
    let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    let (major, minor) = text.trim().split_once(':').unwrap_or(("", ""));
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => Ok((major, minor)),
        _ => Err(Error::verify(format!(
            "{path}: expected two numbers, found {text:?}"
        ))),
    }
}
