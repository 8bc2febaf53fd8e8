//! Why a keys file cannot be used.

use std::path::PathBuf;

use crate::bounded_file::FileError;

/// What is wrong with a keys file. Its text says what to change, and never shows a key or a hash.
#[derive(Debug, thiserror::Error)]
pub enum KeysFileError {
    /// It cannot be read.
    #[error("cannot read the keys file {}: {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        error: FileError,
    },
    /// It is not TOML.
    #[error("line {line} of {} is not TOML: {reason}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// Why. Without the text of the line, which may be a key that somebody put there.
        reason: String,
    },
    /// There is no such field.
    #[error("there is no {field} (line {line} of {}){}", path.display(), hint(closest.as_deref()))]
    UnknownField {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What was meant to be a field.
        field: String,
        /// A field that does exist and is spelt much like it.
        closest: Option<String>,
    },
    /// A field has a value that is not allowed.
    #[error("{field} is {value} (line {line} of {}); allowed is {allowed}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The field.
        field: String,
        /// Its value, unless it may be a secret.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// There is no key in it. A file that is empty for a moment must not shut everybody out.
    #[error("there is no [[key]] in {}; `latchgate key new` makes one", .0.display())]
    Empty(PathBuf),
}

fn hint(closest: Option<&str>) -> String {
    closest.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}
