//! Commands on recorded traces: `ioprobe trace summary|iolog|iolog-files|replay FILE`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;

use iotrace::{iolog, summary};
use serde::Serialize;

use crate::jobs::replay;

/// Run a command on a trace; errors go to standard error, with exit status 1.
pub fn main(words: &[OsString]) -> ExitCode {
    let done = match words {
        [command, file] => run(command, Path::new(file)),
        _ => Err("trace: expected a command and a file".to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), String>;

fn run(command: &OsStr, file: &Path) -> Done {
    match command.to_str() {
        Some("summary") => {
            print(&summary::summarise(opened(file)?).map_err(|error| of(file, error))?)
        }
        Some("iolog") => log(file),
        Some("iolog-files") => {
            print(&iolog::files(opened(file)?).map_err(|error| of(file, error))?)
        }
        Some("replay") => {
            let name = file.display().to_string();
            print(&replay::facts(opened(file)?, &name).map_err(|error| error.to_string())?)
        }
        _ => Err(format!(
            "trace: no command {}, only summary, iolog, iolog-files and replay",
            command.to_string_lossy()
        )),
    }
}

fn log(file: &Path) -> Done {
    let output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    iolog::write(opened(file)?, output).map_err(|error| of(file, error))?;
    Ok(())
}

fn opened(file: &Path) -> Result<BufReader<File>, String> {
    let opened = File::open(file).map_err(|error| of(file, error))?;
    Ok(BufReader::with_capacity(1 << 16, opened))
}

fn print(document: &impl Serialize) -> Done {
    let mut output = BufWriter::new(io::stdout().lock());
    serde_json::to_writer(&mut output, document).map_err(|error| error.to_string())?;
    writeln!(output)
        .and_then(|()| output.flush())
        .map_err(|error| error.to_string())
}

fn of(file: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", file.display())
}
