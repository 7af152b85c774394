//! A program ready to execute: found in PATH, with arguments and environment laid out for the
//! kernel.
//!
//! All of this is done before the clock starts, so that the timed part of a command contains only
//! the work of the kernel and of the command.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::unix::fs::PermissionsExt;

use libc::c_char;

use crate::error::{Error, Result};
use crate::sys::c_text;

const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub struct Program {
    pub name: String,
    pub path: CString,
    pub argv: CArray,
}

/// Strings, and the null-terminated array of pointers to them. The pointers are to the heap, so
/// moving this is fine.
pub struct CArray {
    _texts: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl CArray {
    pub fn new<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self> {
        let texts = texts
            .into_iter()
            .map(|text| c_text(text.as_ref()))
            .collect::<Result<Vec<_>>>()?;
        let pointers = texts
            .iter()
            .map(|text| text.as_ptr())
            .chain([std::ptr::null()])
            .collect();
        Ok(CArray {
            _texts: texts,
            pointers,
        })
    }

    pub fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

/// A variable that the conductor sets in the environment of the probe, inherited by all that the
/// probe starts.
pub const TOKEN: &str = "IOTRIAL_SESSION";

/// The environment of a command: a minimum, overridden by the request's variables.
pub struct Environment {
    variables: BTreeMap<String, String>,
}

impl Environment {
    pub fn new(requested: Option<&BTreeMap<String, String>>) -> Result<Self> {
        // Root runs the system's programs: the PATH of the caller's shell may lead to folders of
        // other users.
        let root = rustix::process::geteuid().is_root();
        let own_path = std::env::var("PATH")
            .ok()
            .filter(|_| !root)
            .unwrap_or_else(|| DEFAULT_PATH.to_string());
        let mut variables = BTreeMap::from([
            ("PATH".to_string(), own_path),
            ("HOME".to_string(), "/".to_string()),
            ("LC_ALL".to_string(), "C".to_string()),
        ]);
        // Identifies leftovers of the session later, even after they were reparented.
        if let Ok(token) = std::env::var(TOKEN) {
            variables.insert(TOKEN.to_string(), token);
        }
        for (name, value) in requested.into_iter().flatten() {
            if name.is_empty() || name.contains('=') {
                return Err(Error::bad(format!(
                    "environment: names must not contain '=', found {name:?}"
                )));
            }
            variables.insert(name.clone(), value.clone());
        }
        Ok(Environment { variables })
    }

    pub fn laid_out(&self) -> Result<CArray> {
        CArray::new(self.variables.iter().map(|(n, v)| format!("{n}={v}")))
    }

    /// Find an executable file like execvp. A name with a slash is returned unchanged.
    pub fn resolve(&self, name: &str) -> Result<String> {
        if name.contains('/') {
            return Ok(name.to_string());
        }
        let path = &self.variables["PATH"];
        path.split(':')
            .map(|folder| match folder {
                "" => format!("./{name}"),
                _ => format!("{folder}/{name}"),
            })
            .find(|candidate| is_executable(candidate))
            .ok_or_else(|| Error::errno(format!("find {name} in PATH {path}"), libc::ENOENT))
    }

    pub fn program(&self, argv: &[String]) -> Result<Program> {
        let name = argv
            .first()
            .filter(|name| !name.is_empty())
            .ok_or_else(|| {
                Error::bad("argv: expected at least a program name, found an empty list")
            })?;
        Ok(Program {
            name: name.clone(),
            path: c_text(&self.resolve(name)?)?,
            argv: CArray::new(argv)?,
        })
    }
}

fn is_executable(path: &str) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_along_the_path_that_was_given() {
        let requested =
            BTreeMap::from([("PATH".to_string(), "/nowhere:/usr/bin:/bin".to_string())]);
        let environment = Environment::new(Some(&requested)).unwrap();
        assert!(environment.resolve("sh").unwrap().ends_with("bin/sh"));
        assert_eq!(environment.resolve("/x/y").unwrap(), "/x/y");
        let error = environment.resolve("no-such-program").unwrap_err();
        assert!(
            error.to_string().contains("/nowhere:/usr/bin:/bin"),
            "{error}"
        );
    }

    #[test]
    fn an_empty_argv_is_a_bad_request() {
        let environment = Environment::new(None).unwrap();
        assert!(matches!(
            environment.program(&[]),
            Err(Error::BadRequest(_))
        ));
    }
}
