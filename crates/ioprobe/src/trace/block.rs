//! Accounting of a device's requests: how long each kind of them took, from being made to being complete.
//!
//! As for system calls, what is traced is not timed: it belongs into repetitions of their own.

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
    /// Of the requests that are being counted; none else are.
    static GATE: RefCell<Option<Rc<Gate>>> = const { RefCell::new(None) };
}

/// Counts from here on, or no longer, where requests are to be counted at all; whether they are. What a job does before its work
/// and what it checks after it stays out by this.
pub fn counting(open: bool) -> bool {
    GATE.with(|gate| {
        let gate = gate.borrow();
        if let Some(gate) = gate.as_ref() {
            gate.set(open);
        }
        gate.is_some()
    })
}

/// The requests of some devices, while this lives and `counting` is on.
pub struct Requests(Vec<(String, Watching)>);

impl Drop for Requests {
    fn drop(&mut self) {
        GATE.with(|gate| *gate.borrow_mut() = None);
    }
}

impl Requests {
    /// Has the requests of whole devices counted whenever `counting` says so.
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

    /// By device and kind: `count`, `total_ns`, `untimed`, `histogram` (`[highest ns of the bar, count]`), kinds without a
    /// request left out. And how many completions were not seen, which may have been of other devices.
    pub fn finish(self) -> Result<(Value, u64)> {
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
            "devices: wanted a name as in /sys/block, found {name:?}"
        )));
    }
    let path = format!("/sys/block/{name}/dev");
    let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    let (major, minor) = text.trim().split_once(':').unwrap_or(("", ""));
    match (major.parse(), minor.parse()) {
        (Ok(major), Ok(minor)) => Ok((major, minor)),
        _ => Err(Error::verify(format!(
            "{path}: wanted two numbers, found {text:?}"
        ))),
    }
}
