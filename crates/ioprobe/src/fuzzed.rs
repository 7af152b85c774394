//! The root of the fuzz target in `fuzz/`: the modules that parse, behind libFuzzer.
//!
//! It is in this folder so that the modules find each other as in the probe; the probe itself is
//! not built from it.

#![no_main]
#![allow(dead_code)] // used only by the rest of the probe

mod trace;
mod prefault;
mod counters;
mod acknowledge;
mod drain;
mod broker;
mod clock;
mod content;
mod error;
mod fileset;
mod identity;
mod isolate;
mod jobs;
mod parsers;
mod process;
mod protocol;
mod recorder;
mod sampler;
mod series;
mod server;
mod session;
mod sys;
mod uring;
mod watch;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

static PARSER: OnceLock<fn(&[u8])> = OnceLock::new();

fuzz_target!(|data: &[u8]| {
    let parse = PARSER.get_or_init(|| {
        let name = std::env::var("IOPROBE_PARSER").unwrap_or_else(|_| "wire".to_string());
        match parsers::PARSERS.iter().find(|(known, _)| *known == name) {
            Some((_, parse)) => *parse,
            None => panic!("IOPROBE_PARSER: no parser named {name}"),
        }
    });
    parse(data);
});
