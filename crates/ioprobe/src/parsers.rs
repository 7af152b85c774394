//! Every parser of the probe as a function of bytes that must return, whatever the bytes.
//!
//! They are called by the fuzz target in `fuzz/`, and by the tests below, which replay the stored
//! cases of `tests/fuzz/cases` and some thousands of damaged copies of each. Where accepted input
//! must have certain properties, these are checked too.

use serde_json::{json, Value};

use crate::counters::devices;
use crate::error::{Error, Result};
use crate::process;
use crate::protocol::{self, fields, job_fields, Fields};
use crate::trace::bpf::types::Types;

pub type Parser = (&'static str, fn(&[u8]));

pub const PARSERS: &[Parser] = &[
    ("wire", request),
    ("counters", counters),
    ("stat", stat),
    ("types", types),
    ("trace", crate::jobs::replay::parse),
];

/// Readers of requests that contain objects, lists and enum words.
const READERS: [fn(&str, Fields) -> Result<()>; 5] = [
    |verb, params| fields::<protocol::Mount>(verb, params).map(drop),
    |verb, params| fields::<protocol::Run>(verb, params).map(drop),
    |verb, params| fields::<protocol::ServerStart>(verb, params).map(drop),
    |verb, params| fields::<simdisk::Description>(verb, params).map(drop),
    |verb, params| fields::<protocol::Warm>(verb, params).map(drop),
];

/// Parse a request line as several verbs, and format the answer to any error.
fn request(line: &[u8]) {
    let mut id = Value::Null;
    let (verb, params) = match protocol::request(line, &mut id) {
        Ok(parts) => parts,
        Err(error) => return answer(&id, &error),
    };
    for read in READERS {
        if let Err(error) = read(&verb, params.clone()) {
            answer(&id, &error);
        }
    }
    if let Ok((common, _)) = job_fields::<protocol::FilesJob>(&verb, params.clone()) {
        assert!((0.0..=100.0).contains(&common.stretch) && common.replicates > 0);
    }
    if let Ok((common, own)) = job_fields::<protocol::RandomJob>(&verb, params.clone()) {
        let _ = crate::jobs::random::check(&common, &own);
    }
    if let Ok((common, own)) = job_fields::<protocol::ReplayJob>(&verb, params.clone()) {
        let _ = crate::jobs::replay::check(&common, &own);
    }
    if let Ok((_, own)) = job_fields::<protocol::CommandJob>(&verb, params.clone()) {
        assert!(own.steps.len() <= line.len());
    }
    if let Ok((_, own)) = job_fields::<protocol::StreamJob>(&verb, params.clone()) {
        assert!(own.data.percent <= 100);
    }
    if let Ok((common, own)) = job_fields::<protocol::MatrixJob>(&verb, params.clone()) {
        let _ = crate::jobs::matrix::check_request(&common, &own);
    }
    if let Ok(request) = fields::<protocol::MakeSet>(&verb, params) {
        assert!(request.mode.0 <= 0o7777);
    }
}

/// Check that an answer is always a single line.
fn answer(id: &Value, error: &Error) {
    let text = json!({"id": id, "error": error.report()}).to_string();
    assert!(!text.contains('\n'));
}

/// Parse the counters of a block device.
fn counters(text: &[u8]) {
    devices::parse(text);
}

/// Parse a line of /proc/PID/stat; its second field is any name in parentheses.
fn stat(text: &[u8]) {
    process::stragglers::parent_in_stat(&String::from_utf8_lossy(text));
}

/// Parse the kernel's type information (BTF).
fn types(blob: &[u8]) {
    let types = match Types::parse(blob.to_vec()) {
        Some(types) => types,
        None => return,
    };
    for (structure, member) in [
        ("list_head", "prev"),
        ("outer", "deep"),
        ("outer", "nowhere"),
        ("nowhere", "x"),
    ] {
        match types.offset(structure, member) {
            Ok(offset) => assert!(offset >= 0),
            Err(error) => assert!(error.to_string().contains(structure)),
        }
    }
    let last = types.tracepoint("sys_enter").unwrap_or(0);
    assert!((last as usize) < blob.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damage::damaged;

    #[test]
    fn every_kept_case_comes_back() {
        for (name, parse) in PARSERS {
            let cases = kept(name);
            assert!(!cases.is_empty(), "{name}: no case");
            for (_, case) in cases {
                parse(&case);
            }
        }
    }

    fn kept(parser: &str) -> Vec<(String, Vec<u8>)> {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/cases");
        std::fs::read_dir(format!("{cases}/{parser}"))
            .unwrap()
            .map(|entry| {
                let path = entry.unwrap().path();
                (path.display().to_string(), std::fs::read(path).unwrap())
            })
            .collect()
    }

    #[test]
    fn every_damaged_case_comes_back() {
        const MOST_BYTES: usize = 4 << 20;
        const MOST: usize = 4000;
        for (name, parse) in PARSERS {
            for (path, case) in kept(name) {
                for number in 0..MOST.min(MOST_BYTES / (case.len() + 64) + 1) {
                    let bytes = damaged(&case, number as u64);
                    let parsed = std::panic::catch_unwind(|| parse(&bytes));
                    assert!(parsed.is_ok(), "{path}, damaged in way {number}");
                }
            }
        }
    }

    #[test]
    fn a_line_of_a_hundred_thousand_brackets_is_refused_and_not_followed() {
        for open in ["[", "{\"a\":", "{\"id\":["] {
            request(open.repeat(100_000).as_bytes());
        }
    }

    #[test]
    fn the_last_of_two_keys_counts_and_an_error_keeps_to_a_bounded_length() {
        let mut id = Value::Null;
        let (verb, params) = protocol::request(
            br#"{"id":1,"id":2,"verb":"read","path":"a","path":"b"}"#,
            &mut id,
        )
        .unwrap();
        assert_eq!(id, json!(2));
        assert_eq!((verb.as_str(), &params["path"]), ("read", &json!("b")));
        for line in [
            format!("[\"{}\"]", "x".repeat(1 << 20)),
            format!("{{\"verb\":[\"{}\"]}}", "x".repeat(1 << 20)),
            format!(
                "{{\"verb\":\"read\",\"{}\":1,\"path\":\"/\"}}",
                "x".repeat(1 << 20)
            ),
            format!("{{\"verb\":\"{}\"}}", "x".repeat(1 << 20)),
        ] {
            let error = match protocol::request(line.as_bytes(), &mut id) {
                Ok((verb, params)) => {
                    protocol::fields::<protocol::Path>(&verb, params).unwrap_err()
                }
                Err(error) => error,
            };
            assert!(error.to_string().len() < 1000);
        }
    }
}
