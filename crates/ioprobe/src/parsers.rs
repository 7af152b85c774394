//! Every parser of the probe as a function of bytes that must return, whatever the bytes.
//!
//! Two things call them: the fuzz target in `fuzz/`, and the test below, which replays the kept cases of
//! `tests/fuzz/cases`. What a parser accepts is looked at too, where there is something that must hold of it.

use serde_json::{json, Value};

use crate::wire::{self, job_fields, FromJson, Mode};
use crate::{devices, process};

pub type Parser = (&'static str, fn(&[u8]));

pub const PARSERS: &[Parser] = &[("wire", request), ("counters", counters), ("stat", stat)];

/// A request line, read as every verb there is, and the answer that an error becomes.
fn request(line: &[u8]) {
    let mut id = Value::Null;
    let (verb, given) = match wire::request(line, &mut id) {
        Ok(parts) => parts,
        Err(error) => return answer(&id, &error.to_json()),
    };
    for read in wire::readers() {
        if let Err(error) = read(&verb, given.clone()) {
            answer(&id, &error.to_json());
        }
    }
    if let Ok((common, _)) = job_fields::<wire::FilesJob>(&verb, given.clone()) {
        assert!((0.0..=100.0).contains(&common.stretch) && common.replicates > 0);
    }
    if let Ok((common, own)) = job_fields::<wire::RandomJob>(&verb, given.clone()) {
        let _ = crate::job::random::check(&common, &own);
    }
    if let Ok((_, own)) = job_fields::<wire::CommandJob>(&verb, given.clone()) {
        assert!(own.steps.len() <= line.len());
    }
    if let Ok((_, own)) = job_fields::<wire::StreamJob>(&verb, given.clone()) {
        assert!(own.data.percent <= 100);
    }
    if let Ok((common, own)) = job_fields::<wire::MatrixJob>(&verb, given.clone()) {
        let _ = crate::job::matrix::request::check_request(&common, &own);
    }
    if let Some(mode) = given.get("mode").and_then(Mode::from_json) {
        assert!(mode.0 <= 0o7777);
    }
}

/// An answer is one line whatever is told in it.
fn answer(id: &Value, error: &Value) {
    let text = json!({"id": id, "error": error}).to_string();
    assert!(!text.contains('\n'));
}

/// The counters of a block device.
fn counters(text: &[u8]) {
    devices::parse(text);
}

/// A line of /proc/PID/stat, whose second field is any name in parentheses.
fn stat(text: &[u8]) {
    process::stragglers::parent_in_stat(&String::from_utf8_lossy(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kept_case_comes_back() {
        let cases = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fuzz/cases");
        for (name, parse) in PARSERS {
            let mut replayed = 0;
            for entry in std::fs::read_dir(format!("{cases}/{name}")).unwrap() {
                parse(&std::fs::read(entry.unwrap().path()).unwrap());
                replayed += 1;
            }
            assert!(replayed > 0, "{name}: no case");
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
        let (verb, given) = wire::request(
            br#"{"id":1,"id":2,"verb":"read","path":"a","path":"b"}"#,
            &mut id,
        )
        .unwrap();
        assert_eq!(id, json!(2));
        assert_eq!((verb.as_str(), &given["path"]), ("read", &json!("b")));
        for line in [
            format!("[\"{}\"]", "x".repeat(1 << 20)),
            format!("{{\"verb\":[\"{}\"]}}", "x".repeat(1 << 20)),
            format!(
                "{{\"verb\":\"read\",\"{}\":1,\"path\":\"/\"}}",
                "x".repeat(1 << 20)
            ),
            format!("{{\"verb\":\"{}\"}}", "x".repeat(1 << 20)),
        ] {
            let error = match wire::request(line.as_bytes(), &mut id) {
                Ok((verb, given)) => wire::fields::<wire::Path>(&verb, given).unwrap_err(),
                Err(error) => error,
            };
            assert!(error.to_string().len() < 1000);
        }
    }
}
