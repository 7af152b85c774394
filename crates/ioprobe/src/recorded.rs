//! Commands on recorded traces: `ioprobe trace summary|iolog|iolog-files FILE`.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::process::ExitCode;

use iotrace::{iolog, summary};
use serde::Serialize;

/// Run a command; errors go to standard error, with exit status 1.
pub fn run(command: &str, file: &str) -> ExitCode {
    let done = match command {
        "summary" => summarise(file),
        "iolog" => log(file),
        "iolog-files" => log_files(file),
        other => Err(format!(
            "trace: no command {other}, only summary, iolog and iolog-files"
        )),
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

fn summarise(file: &str) -> Done {
    print(&summary::summarise(opened(file)?).map_err(|error| of(file, error))?)
}

fn log(file: &str) -> Done {
    let output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = iolog::write(opened(file)?, output).map_err(|error| of(file, error))?;
    let text = serde_json::to_string(&written).map_err(|error| error.to_string())?;
    eprintln!("{text}");
    Ok(())
}

fn log_files(file: &str) -> Done {
    print(&iolog::files(opened(file)?).map_err(|error| of(file, error))?)
}

fn opened(file: &str) -> Result<BufReader<File>, String> {
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

fn of(file: &str, error: impl std::fmt::Display) -> String {
    format!("{file}: {error}")
}
