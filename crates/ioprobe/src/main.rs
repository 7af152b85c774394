//! `ioprobe`: prepares devices and file systems, runs the workloads, times them and reports the
//! results.
//!
//! Reads one JSON object per line from standard input and answers each, in order, with one line on
//! standard output. The log goes to standard error. One process serves a whole trial, so a run pays
//! no start-up cost. The probe makes no decisions: the conductor says what to do, in which order
//! and on what.

mod acknowledge;
#[cfg(test)]
mod allocations;
mod broker;
mod clock;
mod content;
mod counters;
#[cfg(test)]
mod damage;
mod drain;
mod error;
mod fileset;
mod identity;
mod init;
mod isolate;
mod jobs;
#[cfg(test)]
mod parsers;
mod prefault;
mod process;
mod protocol;
mod record;
mod recorded;
mod recorder;
mod sampler;
mod series;
mod server;
mod session;
mod sys;
mod trace;
mod uring;
mod watch;

use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use crate::error::{Doing, Error, Result};
use crate::isolate::Lifeline;
use crate::session::Session;

const USAGE: &str = "usage: ioprobe [--isolate] [--powercap FOLDER] | record ... | trace COMMAND FILE | --init | --version | --help

Answers one JSON object a line from standard input with one on standard output.
--isolate   (root) private mount and PID namespaces: what it mounts and starts dies with it
--init      as process 1 of a guest: load its modules, then answer from the virtio port \"iotrial\", and turn the guest off
record      record the file operations of a command or a process
trace       print of a recorded trace: summary (JSON), iolog (a log of fio), iolog-files (what must exist before it),
            replay (what its replay needs, JSON)
--powercap  where the energy meters are, instead of /sys/class/powercap (for tests)";

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    match words.next() {
        Some(word) if word == "record" => return record::main(words.collect()),
        Some(word) if word == "trace" => return recorded::main(&words.collect::<Vec<_>>()),
        _ => {}
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (mut isolated, mut of_guest) = (true, false);
    let powercap = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            isolated = false;
            counters::POWERCAP
        }
        ["--isolate"] => counters::POWERCAP,
        ["--isolate", init::OF_GUEST] => {
            of_guest = true;
            counters::POWERCAP
        }
        ["--powercap", folder] => {
            isolated = false;
            folder
        }
        ["--isolate", "--powercap", folder] => folder,
        ["--init"] => init::run(),
        ["--version"] => {
            println!("ioprobe {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        ["--help"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match begin(isolated, of_guest, powercap).and_then(|mut session| serve(&mut session)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ioprobe: {error}");
            ExitCode::FAILURE
        }
    }
}

fn begin(isolated: bool, of_guest: bool, powercap: &str) -> Result<Session> {
    // If SIGCHLD were inherited as ignored, the kernel would reap our children itself and their
    // exit status would be lost.
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    let mut lifeline = Lifeline::to_parent();
    isolate::leave_terminal();
    isolate::drop_signals_of_terminal();
    let origin = isolate::Origin::here()?;
    let mut broker = None;
    if isolated {
        isolate::require_privilege("isolate")?;
        let (inner, started) = isolate::enter(of_guest)?;
        lifeline = inner;
        broker = Some(started);
    } else {
        lifeline = isolate::under_guard(lifeline)?;
    }
    process::limit::install()?;
    counters::open(powercap);
    Session::new(isolated, lifeline, origin, broker)
}

/// Answer requests until standard input ends.
fn serve(session: &mut Session) -> Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let (mut line, mut answer) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        let n = input
            .read_until(b'\n', &mut line)
            .doing(|| "read a request")?;
        if n == 0 {
            return Ok(());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        answer.clear();
        serde_json::to_writer(&mut answer, &respond(session, &line))
            .map_err(|cause| Error::verify(format!("write an answer: {cause}")))?;
        answer.push(b'\n');
        output
            .write_all(&answer)
            .and_then(|_| output.flush())
            .doing(|| "write an answer")?;
    }
}

#[derive(Serialize)]
struct Response {
    id: Value,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Ok(Value),
    Error(error::Report),
}

fn respond(session: &mut Session, line: &[u8]) -> Response {
    let mut id = Value::Null;
    let done =
        protocol::request(line, &mut id).and_then(|(verb, fields)| session.perform(&verb, fields));
    let outcome = match done {
        Ok(answer) => Outcome::Ok(answer),
        Err(error) => Outcome::Error(error.report()),
    };
    Response { id, outcome }
}
