//! The placeholders of a command: `{file}`, `{files}`, `{dir}` and `{out}`.
//!
//! They stand for the lab's files (of the set itself or through a view) and for the output folder
//! of a run, so that a study states what to do without fixed paths.

use std::ffi::CString;

use crate::error::{Error, Result};
use crate::fileset::FileSet;
use crate::process::program::{Environment, Program};
use crate::protocol::{Common, Step};
use crate::sys::c_text;

pub struct Places {
    files: Option<Vec<String>>,
    dir: Option<String>,
    out: Option<String>,
}

impl Places {
    pub fn new(set: Option<&FileSet>, common: &Common, out: Option<&str>) -> Result<Self> {
        let out = out.map(str::to_string);
        let set = match set {
            Some(set) => set,
            None => {
                return Ok(Places {
                    files: None,
                    dir: None,
                    out,
                })
            }
        };
        let view = common.view.as_deref();
        let files = set
            .select_in(view, &common.files)?
            .into_iter()
            .map(|index| set.path_through(view, index))
            .collect::<Result<_>>()?;
        Ok(Places {
            files: Some(files),
            dir: Some(set.root(view)),
            out,
        })
    }

    /// Return the processes of a step: one, or one per file.
    pub fn programs(&self, step: &Step, environment: &Environment) -> Result<Vec<Program>> {
        let argvs = self.expand(&step.argv)?;
        argvs.iter().map(|argv| environment.program(argv)).collect()
    }

    fn expand(&self, argv: &[String]) -> Result<Vec<Vec<String>>> {
        let each = argv.iter().any(|argument| argument.contains("{file}"));
        let all = argv.iter().any(|argument| argument == "{files}");
        if each && all {
            return Err(Error::bad(format!(
                "argv {argv:?}: use either {{file}} or {{files}}, not both"
            )));
        }
        let mut whole = Vec::with_capacity(argv.len());
        for argument in argv {
            match argument.as_str() {
                "{files}" => whole.extend_from_slice(self.files()?),
                _ => whole.push(self.with_folders(argument)?),
            }
        }
        if !each {
            return Ok(vec![whole]);
        }
        let one = |file: &String| whole.iter().map(|a| a.replace("{file}", file)).collect();
        Ok(self.files()?.iter().map(one).collect())
    }

    pub fn with_folders(&self, text: &str) -> Result<String> {
        let mut text = text.to_string();
        for (placeholder, folder, wanted) in [
            ("{dir}", &self.dir, "a file set"),
            ("{out}", &self.out, "a folder to write to"),
        ] {
            if !text.contains(placeholder) {
                continue;
            }
            text = match folder {
                Some(folder) => text.replace(placeholder, folder),
                None => return Err(Error::bad(format!("{placeholder}: needs {wanted}"))),
            };
        }
        Ok(text)
    }

    pub fn folder(&self, cwd: &str) -> Result<CString> {
        c_text(&self.with_folders(cwd)?)
    }

    fn files(&self) -> Result<&[String]> {
        self.files
            .as_deref()
            .ok_or_else(|| Error::bad("{file}: needs a file set"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(argv: &[&str]) -> Result<Vec<Vec<String>>> {
        let places = Places {
            files: Some(vec!["/l/a".to_string(), "/l/b".to_string()]),
            dir: Some("/l".to_string()),
            out: Some("/o".to_string()),
        };
        places.expand(&argv.iter().map(|a| a.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn file_makes_one_process_for_each() {
        assert_eq!(
            expanded(&["dd", "if={file}", "of={dir}/x"]).unwrap(),
            [["dd", "if=/l/a", "of=/l/x"], ["dd", "if=/l/b", "of=/l/x"]]
        );
    }

    #[test]
    fn files_are_all_the_arguments_of_one() {
        assert_eq!(
            expanded(&["cat", "{files}", "-"]).unwrap(),
            [["cat", "/l/a", "/l/b", "-"]]
        );
        assert_eq!(expanded(&["ls", "{dir}"]).unwrap(), [["ls", "/l"]]);
    }

    #[test]
    fn out_is_where_a_run_writes() {
        assert_eq!(
            expanded(&["cp", "{file}", "{out}/x"]).unwrap(),
            [["cp", "/l/a", "/o/x"], ["cp", "/l/b", "/o/x"]]
        );
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        assert!(expanded(&["x", "{file}", "{files}"]).is_err());
        let nothing = Places {
            files: None,
            dir: None,
            out: None,
        };
        for argument in ["{file}", "{files}", "{dir}", "{out}"] {
            assert!(nothing
                .expand(&["x".to_string(), argument.to_string()])
                .is_err());
        }
        assert_eq!(nothing.expand(&["true".to_string()]).unwrap(), [["true"]]);
    }
}
