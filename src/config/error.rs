//! Errors of the configuration, the source of each value, and a hint at the known name closest to a misspelt name.

use std::{fmt, path::PathBuf};

use crate::bounded_file::FileError;

use super::Millis;

/// Where the value of a setting comes from. A later variant overrides an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// No source sets the value: the default applies.
    Default,
    /// A line of the configuration file.
    File {
        /// The path of the configuration file.
        path: PathBuf,
        /// The line of the value in the file, counted from 1.
        line: usize,
    },
    /// An environment variable.
    Variable(String),
    /// A flag of the command line.
    Flag(&'static str),
}

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

/// Why the configuration cannot be loaded, which stops the start. The text says what to change and shows no password.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The configuration file cannot be read.
    #[error("cannot read the configuration file {} ({named_by}): {error}", path.display())]
    Unreadable {
        /// The configuration file.
        path: PathBuf,
        /// The flag or the environment variable that names the configuration file.
        named_by: Source,
        /// Why reading the file failed.
        error: FileError,
    },
    /// A flag or a variable names the configuration file, but the name is empty.
    #[error("{0} is empty; name a configuration file, or leave it out for none")]
    NoFileName(Source),
    /// The configuration file is not TOML.
    #[error(transparent)]
    NotToml(#[from] NotToml),
    /// A source sets a key that does not exist.
    #[error("there is no key {key} ({set_by}){}", hint(closest.as_deref()))]
    UnknownKey {
        /// The key that does not exist.
        key: String,
        /// The file, the variable or the flag that sets the unknown key.
        set_by: Source,
        /// An existing key with a similar name, to be shown as a hint.
        closest: Option<String>,
    },
    /// A variable with the prefix `LATCHGATE_` sets no key.
    #[error("the environment variable {name} is unknown{}", hint(closest.as_deref()))]
    UnknownVariable {
        /// The name of the unknown variable.
        name: String,
        /// A known variable with a similar name, to be shown as a hint.
        closest: Option<String>,
    },
    /// The value of a key is not allowed.
    #[error(transparent)]
    Refused(Box<RefusedValue>),
    /// The value of a variable is not UTF-8.
    #[error("the value of {0} is not UTF-8")]
    NotUtf8(Source),
}

/// A configuration file or keys file that is not TOML.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of {} is not TOML: {reason}", path.display())]
pub struct NotToml {
    /// The path of the file.
    pub path: PathBuf,
    /// The line of the error in the file, counted from 1.
    pub line: usize,
    /// Why the text is not TOML, without the text of the line, which may hold a password.
    pub reason: String,
}

/// A value that a key does not allow, with its source.
#[derive(Debug, thiserror::Error)]
#[error("{key} is {value} ({set_by}); allowed is {allowed}{}", because(depends_on.as_ref()))]
pub struct RefusedValue {
    /// The path of the key whose value is refused.
    pub key: String,
    /// The refused value, without any secret.
    pub value: String,
    /// The source of the refused value: a file, a variable or a flag.
    pub set_by: Source,
    /// A description of the values that the key allows.
    pub allowed: String,
    /// Another key whose value limits which values are allowed, and the source of that other value.
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

// === Invalid ===

/// A value that a configuration struct does not allow. The loader adds the source of the value later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {value}; allowed is {allowed}")]
pub struct Invalid {
    /// The key of the refused value, as a path such as `limits.min_ttl_ms`.
    pub key: &'static str,
    /// The refused value, without any secret.
    pub value: String,
    /// A description of the values that the key allows.
    pub allowed: String,
    /// Another key whose value limits which values are allowed.
    pub depends_on: Option<&'static str>,
}

// === impl Invalid ===

impl Invalid {
    /// Makes an error for a value that is not allowed, whatever the values of other keys are.
    pub(super) fn new(
        key: &'static str,
        value: impl fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        Self {
            key,
            value: value.to_string(),
            allowed: allowed.into(),
            depends_on: None,
        }
    }

    /// Adds to the error the name of another key whose value limits which values are allowed.
    pub(super) fn depending_on(self, key: &'static str) -> Self {
        Self {
            depends_on: Some(key),
            ..self
        }
    }

    /// Checks that the text of one key is set only if the text of another key is set as well.
    pub(super) fn unless_with(
        (key, value): (&'static str, &str),
        (other_key, other): (&'static str, &str),
    ) -> Result<(), Self> {
        if value.is_empty() || !other.is_empty() {
            return Ok(());
        }
        let allowed = format!("nothing without {other_key}, which is empty");
        Err(Self::new(key, format!("{value:?}"), allowed).depending_on(other_key))
    }

    /// Checks that the duration of one key is at most the duration of another key.
    pub(super) fn unless_at_most(
        (key, value): (&'static str, Millis),
        (other_key, other): (&'static str, Millis),
    ) -> Result<(), Self> {
        if value <= other {
            return Ok(());
        }
        let allowed = format!("at most {}, the value of {other_key}", other.0);
        Err(Self::new(key, value.0, allowed).depending_on(other_key))
    }
}

// === Closest ===

/// The known name that is closest to a misspelt name; `None` if no known name is similar enough.
pub(crate) fn closest(written: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    // At most a third of the letters may differ. With a larger limit, the hint would be a guess.
    let most = (written.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (strsim::levenshtein(written, &name), name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_different_word_is_not() {
        let known = || ["listen", "store", "limits.min_ttl_ms"].map(str::to_owned);
        assert_eq!(closest("lisen", known()).as_deref(), Some("listen"));
        assert_eq!(
            closest("limits.min_tll", known()).as_deref(),
            Some("limits.min_ttl_ms")
        );
        assert_eq!(closest("tls", known()), None);
    }
}
