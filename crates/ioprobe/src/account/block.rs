//! Accounting of a device's requests: how long each kind of them took, from being made to being complete.
//!
//! As for system calls, what is traced is not timed: it belongs into repetitions of their own.

use std::fs;

use serde_json::{json, Map, Value};

use super::bpf::block::{Watching, KINDS};
use super::call::longest_ns;
use crate::error::{Doing, Error, Result};

/// The requests of some devices, while this lives.
pub struct Requests(Vec<(String, Watching)>);

impl Requests {
    /// Counts the requests of whole devices from now on.
    pub fn begin(devices: &[String]) -> Result<Self> {
        let watch = |name: &String| {
            let (major, minor) = number(name)?;
            Ok((name.clone(), Watching::begin(major, minor)?))
        };
        devices
            .iter()
            .map(watch)
            .collect::<Result<_>>()
            .map(Requests)
    }

    /// By device and kind: `count`, `total_ns`, `histogram` (`[highest ns of the bar, count]`); kinds without a request are
    /// left out.
    pub fn finish(self) -> Result<Value> {
        let mut found = Map::new();
        for (name, watching) in &self.0 {
            let mut kinds = Map::new();
            for (kind, (total_ns, bars)) in KINDS.iter().zip(watching.read()?) {
                let count: u64 = bars.iter().sum();
                if count > 0 {
                    let filled = bars.iter().enumerate().filter(|(_, count)| **count > 0);
                    let histogram: Vec<(u64, u64)> = filled
                        .map(|(bar, count)| (longest_ns(bar), *count))
                        .collect();
                    let row = json!({"count": count, "total_ns": total_ns, "histogram": histogram});
                    kinds.insert(kind.to_string(), row);
                }
            }
            found.insert(name.clone(), Value::Object(kinds));
        }
        Ok(Value::Object(found))
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
