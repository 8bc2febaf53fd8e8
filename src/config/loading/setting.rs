//! A value that somebody gave to a key, and who it was.

use std::{fmt, path::PathBuf};

use super::super::StoreUrl;

/// Where a value comes from. Later ones win.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
}

/// A value for a key. It may hold a password, which its `Debug` masks.
#[derive(Clone)]
pub(crate) struct Setting {
    pub(crate) path: String,
    pub(crate) value: toml::Value,
    pub(crate) source: Source,
}

// === impl Source ===

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File { path, line } => write!(f, "line {line} of {}", path.display()),
            Self::Variable(name) => write!(f, "the environment variable {name}"),
            Self::Flag(name) => write!(f, "the flag {name}"),
        }
    }
}

// === impl Setting ===

impl Setting {
    /// The value as it may be shown.
    pub(crate) fn displayed(&self) -> String {
        displayed(&self.path, &self.value)
    }
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} ({})", self.path, self.displayed(), self.source)
    }
}

/// A value as it may be shown, whatever it is and however wrong.
pub(crate) fn displayed(path: &str, value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) if path == "store" => format!("{:?}", StoreUrl::redact(text)),
        toml::Value::Table(_) => "a table".to_owned(),
        // What else is written as a list may be a store with its password.
        toml::Value::Array(_) if !path.starts_with("http.allowed_") => "a list".to_owned(),
        value => value.to_string(),
    }
}
