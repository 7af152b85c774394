//! What requests look like on the wire, and nothing that acts.
//!
//! Unknown and missing fields are errors: a field that is silently ignored is a treatment that was never applied. Jobs
//! share fields, which are split off by name first.

mod jobs;
mod json;
mod mode;
mod share;
mod verbs;
mod words;

use serde_json::{Map, Value};

pub use self::jobs::*;
use self::json::excerpt;
pub use self::json::{fields, FromJson};
pub use self::mode::{mode_text, Mode};
pub use self::share::Share;
pub use self::verbs::*;
pub use self::words::*;
use crate::error::{Error, Result};

pub type Fields = Map<String, Value>;
/// A longer text is the name of nothing, and errors repeat it.
const LONGEST_VERB: usize = 64;
/// Which files of a set: all, or these.
pub type Selection = Option<Vec<u32>>;

/// Splits a line into id, verb and the verb's own fields. The id is set as soon as it is known, so that errors carry it.
pub fn request(line: &[u8], id: &mut Value) -> Result<(String, Fields)> {
    let mut fields = match serde_json::from_slice(line) {
        Ok(Value::Object(fields)) => fields,
        Ok(other) => {
            return Err(Error::bad(format!(
                "request: wanted a JSON object, found {}",
                excerpt(&other.to_string())
            )))
        }
        Err(cause) => {
            return Err(Error::bad(format!(
                "request: wanted a JSON object: {cause}"
            )))
        }
    };
    *id = fields.remove("id").unwrap_or(Value::Null);
    match fields.remove("verb") {
        Some(Value::String(verb)) if verb.len() <= LONGEST_VERB => Ok((verb, fields)),
        Some(other) => Err(Error::bad(format!(
            "request: verb: wanted a text, found {}",
            excerpt(&other.to_string())
        ))),
        None => Err(Error::bad("request: missing field `verb`")),
    }
}

/// Fields read as each request that there is, job or not.
#[cfg_attr(not(test), allow(dead_code))] // what the fuzzer calls
pub fn readers() -> impl Iterator<Item = &'static fn(&str, Fields) -> Result<()>> {
    VERBS.iter().chain(JOBS)
}
