//! Why there is no configuration to start with.

use std::path::PathBuf;

use crate::bounded_file::FileError;

use super::Source;

/// What stops start-up. Its text says what to change, and never shows a password.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {} ({named_by}): {error}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Who named it.
        named_by: Source,
        /// Why.
        error: FileError,
    },
    /// The configuration file has no name.
    #[error("{0} is empty; name a configuration file, or leave it out for none")]
    NoFileName(Source),
    /// The configuration file is not TOML.
    #[error(transparent)]
    NotToml(#[from] NotToml),
    /// There is no such key.
    #[error("there is no key {key} ({set_by}){}", hint(closest.as_deref()))]
    UnknownKey {
        /// What was meant to be a key.
        key: String,
        /// Who set it.
        set_by: Source,
        /// A key that does exist and is spelt much like it.
        closest: Option<String>,
    },
    /// There is no such environment variable.
    #[error("the environment variable {name} is unknown{}", hint(closest.as_deref()))]
    UnknownVariable {
        /// Its name.
        name: String,
        /// A variable that does exist and is spelt much like it.
        closest: Option<String>,
    },
    /// The value of a key is not allowed.
    #[error(transparent)]
    Refused(Box<RefusedValue>),
    /// A variable is not UTF-8.
    #[error("the value of {0} is not UTF-8")]
    NotUtf8(Source),
}

/// A text that is not TOML.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of {} is not TOML: {reason}", path.display())]
pub struct NotToml {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// Why. Without the text of the line, which may hold a password.
    pub reason: String,
}

/// A value that is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("{key} is {value} ({set_by}); allowed is {allowed}{}", because(depends_on.as_ref()))]
pub struct RefusedValue {
    /// The key.
    pub key: String,
    /// Its value, without any secret.
    pub value: String,
    /// Who set it.
    pub set_by: Source,
    /// What is allowed.
    pub allowed: String,
    /// Another key on whose value that depends, and who set that.
    pub depends_on: Option<(String, Source)>,
}

fn hint(closest: Option<&str>) -> String {
    match closest {
        Some(name) => format!("; did you mean {name}?"),
        None => "; `latchgate config default` prints every key".to_owned(),
    }
}

fn because(depends_on: Option<&(String, Source)>) -> String {
    match depends_on {
        Some((_, source)) if *source != Source::Default => {
            format!(" ({source})")
        }
        _ => String::new(),
    }
}
