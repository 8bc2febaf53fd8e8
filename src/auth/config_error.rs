//! Why a keys file cannot be used.

use std::path::{Path, PathBuf};

use crate::{
    bounded_file::FileError,
    config::{NotToml, RefusedValue, Source},
};

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
    #[error(transparent)]
    NotToml(#[from] NotToml),
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
    #[error(transparent)]
    Refused(Box<RefusedValue>),
    /// There is no key in it. A file that is empty for a moment must not shut everybody out.
    #[error("there is no [[key]] in {}; `latchgate key new` makes one", .0.display())]
    Empty(PathBuf),
}

// === impl KeysFileError ===

impl KeysFileError {
    /// Something at a line of the file is not allowed.
    pub(super) fn refused(
        path: &Path,
        line: usize,
        key: String,
        value: String,
        allowed: &str,
    ) -> Self {
        let path = path.to_owned();
        Self::Refused(Box::new(RefusedValue {
            key,
            value,
            set_by: Source::File { path, line },
            allowed: allowed.to_owned(),
            depends_on: None,
        }))
    }
}

fn hint(closest: Option<&str>) -> String {
    closest.map_or_else(String::new, |name| format!("; did you mean {name}?"))
}
