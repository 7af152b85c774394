//! JSON to types: the few lines that reading requests strictly takes.
//!
//! Written out, because a derive would need a procedural macro, which cannot be built beside a static binary (see
//! Cargo.toml). In return every error says what was wanted and what was found.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Fields;
use crate::error::{Error, Result};
use crate::identity::User;

/// A type that a field can have.
pub trait FromJson: Sized {
    /// What a reader of the error should have written.
    const WANTED: &'static str;

    fn from_json(value: &Value) -> Option<Self>;
}

/// The fields of one verb.
pub trait Request: Sized {
    fn read(reader: &mut Reader) -> std::result::Result<Self, String>;
}

/// The fields of a verb as its own type.
pub fn fields<T: Request>(verb: &str, fields: Fields) -> Result<T> {
    read(fields).map_err(|cause| Error::bad(format!("request {verb}: {cause}")))
}

/// As `fields`, for an object inside a request.
pub fn read<T: Request>(fields: Fields) -> std::result::Result<T, String> {
    let mut reader = Reader {
        fields,
        known: Vec::new(),
    };
    let request = T::read(&mut reader)?;
    match reader.fields.keys().next() {
        None => Ok(request),
        Some(unknown) => {
            let known = match reader.known.len() {
                0 => "no fields".to_string(),
                _ => format!("the fields {}", reader.known.join(", ")),
            };
            Err(format!("wanted {known}, found also {}", excerpt(unknown)))
        }
    }
}

/// So much of a text from outside as an error repeats.
pub fn excerpt(text: &str) -> String {
    text.chars().take(200).collect()
}

pub struct Reader {
    fields: Fields,
    known: Vec<&'static str>,
}

impl Reader {
    /// One field; where it is left out or null, its default.
    pub fn take<T: FromJson>(
        &mut self,
        name: &'static str,
        default: Option<T>,
    ) -> std::result::Result<T, String> {
        self.known.push(name);
        match (self.fields.remove(name), default) {
            (None | Some(Value::Null), Some(default)) => Ok(default),
            (None, None) => Err(format!("missing field {name}")),
            (Some(value), _) => T::from_json(&value).ok_or_else(|| {
                let found = value.to_string();
                format!("{name}: wanted {}, found {}", T::WANTED, excerpt(&found))
            }),
        }
    }
}

impl FromJson for String {
    const WANTED: &'static str = "a text";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_str().map(String::from)
    }
}

impl FromJson for bool {
    const WANTED: &'static str = "true or false";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_bool()
    }
}

impl FromJson for f64 {
    const WANTED: &'static str = "a number";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_f64()
    }
}

macro_rules! whole_numbers {
    ($($type:ty: $read:ident, $wanted:literal;)*) => {
        $(
            impl FromJson for $type {
                const WANTED: &'static str = $wanted;

                fn from_json(value: &Value) -> Option<Self> {
                    value.$read()?.try_into().ok()
                }
            }
        )*
    };
}

whole_numbers! {
    u8: as_u64, "a whole number from 0 to 255";
    u16: as_u64, "a whole number from 0 to 65535";
    u32: as_u64, "a whole number from 0 to 4294967295";
    u64: as_u64, "a whole number from 0 on";
    usize: as_u64, "a whole number from 0 on";
    i32: as_i64, "a whole number";
    i64: as_i64, "a whole number";
}

impl<T: FromJson> FromJson for Option<T> {
    const WANTED: &'static str = T::WANTED;

    fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_json(value).map(Some),
        }
    }
}

impl<T: FromJson> FromJson for Vec<T> {
    const WANTED: &'static str = "a list of the right things";

    fn from_json(value: &Value) -> Option<Self> {
        value.as_array()?.iter().map(T::from_json).collect()
    }
}

impl FromJson for BTreeMap<String, String> {
    const WANTED: &'static str = "an object of texts";

    fn from_json(value: &Value) -> Option<Self> {
        let pair =
            |(name, value): (&String, &Value)| Some((name.clone(), String::from_json(value)?));
        value.as_object()?.iter().map(pair).collect()
    }
}

/// A field that is an object with fields of its own, read as strictly.
macro_rules! objects {
    ($($type:ty: $wanted:literal;)*) => {
        $(
            impl FromJson for $type {
                const WANTED: &'static str = $wanted;

                fn from_json(value: &Value) -> Option<Self> {
                    read(value.as_object()?.clone()).ok()
                }
            }
        )*
    };
}

objects! {
    super::Step: "an object with name and argv";
    super::Ready: "an object with one of tcp, socket and file";
    User: "an object with uid and gid";
    super::RotatingDisk: "an object with the figures of a disk that turns";
    super::FlatDisk: "an object with the figures of a disk that does not turn";
}

impl Request for User {
    fn read(reader: &mut Reader) -> std::result::Result<Self, String> {
        Ok(User {
            uid: reader.take("uid", None)?,
            gid: reader.take("gid", None)?,
        })
    }
}

/// Each line is a type, its fields, and what a field is that the request leaves out; before them the name of a list of all.
macro_rules! requests {
    (@default) => { None };
    (@default $default:expr) => { Some($default) };
    ($all:ident: $($name:ident { $($field:ident: $type:ty $(= $default:expr)?),* $(,)? })*) => {
        $(
            #[derive(Debug)]
            pub struct $name { $(pub $field: $type),* }

            impl $name {
                #[allow(dead_code)] // only those of a job are asked for by name
                pub const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];
            }

            impl Request for $name {
                fn read(_reader: &mut Reader) -> std::result::Result<Self, String> {
                    Ok($name {
                        $($field: _reader.take(
                            stringify!($field).trim_start_matches("r#"),
                            requests!(@default $($default)?),
                        )?),*
                    })
                }
            }
        )*

        /// Each of them read for nothing but its error.
        #[cfg_attr(not(test), allow(dead_code))] // what the fuzzer calls
        pub const $all: &[fn(&str, Fields) -> Result<()>] =
            &[$(|verb: &str, given: Fields| fields::<$name>(verb, given).map(drop)),*];
    };
}
pub(super) use requests;

/// An enumeration whose members are words on the wire.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($member:ident = $word:literal,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
            pub enum $name { $($member),* }

            impl $name {
                #[allow(dead_code)] // not every enumeration is gone through
                pub const ALL: &'static [$name] = &[$($name::$member),*];

                #[allow(dead_code)] // nor written back
                pub fn name(self) -> &'static str {
                    match self { $($name::$member => $word),* }
                }
            }

            impl FromJson for $name {
                const WANTED: &'static str = concat!("one of", $(" ", $word),*);

                fn from_json(value: &Value) -> Option<Self> {
                    match value.as_str()? {
                        $($word => Some($name::$member),)*
                        _ => None,
                    }
                }
            }
        )*
    };
}
pub(super) use words;

#[cfg(test)]
pub mod tests {
    use super::super::{Nothing, Path};
    use super::*;
    use serde_json::json;

    pub fn object(value: Value) -> Fields {
        match value {
            Value::Object(fields) => fields,
            other => panic!("{other}"),
        }
    }

    pub fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn an_unknown_a_missing_and_a_wrong_field_are_errors_that_name_it() {
        let error = message(fields::<Path>(
            "read",
            object(json!({"path": "/x", "pth": 1})),
        ));
        assert_eq!(
            error,
            "request read: wanted the fields path, found also pth"
        );
        let error = message(fields::<Path>("read", object(json!({}))));
        assert_eq!(error, "request read: missing field path");
        let error = message(fields::<Path>("read", object(json!({"path": 3}))));
        assert_eq!(error, "request read: path: wanted a text, found 3");
        let error = message(fields::<Nothing>("sync", object(json!({"x": 1}))));
        assert_eq!(error, "request sync: wanted no fields, found also x");
    }
}
