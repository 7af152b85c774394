//! Accounting of a device's requests: how long each kind of them took, from being made to being complete.
//!
//! As for system calls, what is traced is not timed: it belongs into repetitions of their own.

use std::fs;

use serde_json::{Map, Value};

use super::bpf::block::{Watching, KINDS};
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

    /// By device and kind: `count`, `total_ns`, `untimed`, `histogram` (`[highest ns of the bar, count]`), kinds without a
    /// request left out. And how many completions were not seen, which may have been of other devices.
    pub fn finish(self) -> Result<(Value, u64)> {
        let (mut found, mut lost) = (Map::new(), 0);
        for (name, watching) in &self.0 {
            let mut kinds = Map::new();
            for (kind, times) in KINDS.iter().zip(watching.read()?) {
                if times.count() > 0 {
                    kinds.insert(kind.to_string(), times.to_json());
                }
            }
            found.insert(name.clone(), Value::Object(kinds));
            lost += watching.missed()?;
        }
        Ok((Value::Object(found), lost))
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
