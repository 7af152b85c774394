//! A server that ends unexpectedly: the work that needed it has failed.

use libc::c_int;
use serde_json::{json, Value};

use super::{how, Server, SERVERS};
use crate::error::{Error, Result};
use crate::jobs::command::Failure;

/// Timeout for the reaper's report, which follows a moment after the end.
const MESSAGE_WITHIN_MS: c_int = 2000;

/// Adjust the answer of a verb during which a server may have died: a job has failed then, whatever
/// its own result, and an error mentions the server.
pub fn judged(answer: Result<Value>) -> Result<Value> {
    let is_job = |answer: &Value| answer.get("servers").is_some();
    if !answer.as_ref().map_or(true, is_job) {
        return answer;
    }
    let dead = SERVERS.with(|all| {
        let mut all = all.borrow_mut();
        for server in all.iter_mut() {
            // The report of the reaper follows a moment later.
            let just_ended = server.ended.is_none() && server.has_ended();
            server.listen(if just_ended { MESSAGE_WITHIN_MS } else { 0 })?;
            server.forget_much()?;
        }
        Ok::<_, Error>(all.iter().find_map(Dead::of))
    })?;
    match (dead, answer) {
        (None, answer) => answer,
        (Some(dead), Ok(answer)) => Ok(dead.failed(answer)),
        (Some(dead), Err(error)) => Err(dead.explained(error)),
    }
}

/// A server that has ended unexpectedly.
struct Dead {
    name: String,
    program: String,
    status: c_int,
    stderr: String,
}

impl Dead {
    fn of(server: &Server) -> Option<Self> {
        Some(Dead {
            name: server.name.clone(),
            program: server.program.clone(),
            status: server.ended?,
            stderr: server.last_words(),
        })
    }

    /// Report its end before what the work itself found wrong, which is most likely a consequence.
    fn failed(self, mut answer: Value) -> Value {
        let status = self.status;
        let mut failures = vec![json!(Failure {
            step: format!("server {}", self.name),
            argv0: self.program,
            exit: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
            timed_out: false,
            stderr: self.stderr,
        })];
        let others = answer["failures"].as_array().cloned();
        failures.extend(others.unwrap_or_default());
        answer["failures"] = json!(failures);
        answer["verified"] = json!(false);
        answer
    }

    fn explained(self, error: Error) -> Error {
        let (name, stderr) = (self.name, self.stderr.trim());
        let before = format!("server {name} {}: {stderr}; then", how(self.status));
        match error {
            Error::Os { doing, errno } => Error::errno(format!("{before} {doing}"), errno),
            Error::Verify(text) => Error::verify(format!("{before} {text}")),
            other => other,
        }
    }
}
