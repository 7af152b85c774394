//! Modes and sizes of the files of a set: set, and read back from the kernel.

use std::collections::BTreeMap;

use serde_json::{json, Value};

use super::Registry;
use crate::error::Result;
use crate::protocol::{mode_text, OfFiles, SetMode};
use crate::sys::{set_mode, stat};

pub fn set(request: SetMode, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let files = set.select(&request.files)?;
    for index in &files {
        set_mode(&set.path(*index), request.mode.0)?;
    }
    Ok(json!({"changed": files.len()}))
}

pub fn get(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let mut modes = BTreeMap::<String, u64>::new();
    for index in set.select(&request.files)? {
        let mode = stat(&set.path(index), false)?.st_mode;
        *modes.entry(mode_text(mode)).or_default() += 1;
    }
    Ok(json!({ "modes": modes }))
}

pub fn sizes(request: OfFiles, registry: &mut Registry) -> Result<Value> {
    let set = registry.get(&request.set)?;
    let mut sizes = BTreeMap::<String, u64>::new();
    for index in set.select(&request.files)? {
        let size = stat(&set.path(index), false)?.st_size;
        *sizes.entry(size.to_string()).or_default() += 1;
    }
    Ok(json!({ "sizes": sizes }))
}
