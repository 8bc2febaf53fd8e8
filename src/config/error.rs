//! Why there is no configuration to start with: errors, a value that a struct does not accept, and the name that was meant.

use std::{fmt, path::PathBuf};

use crate::bounded_file::FileError;

use super::Millis;

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

// === Invalid ===

/// What a struct found wrong with itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key} is {value}; allowed is {allowed}")]
pub struct Invalid {
    /// The key, as a path such as `limits.min_ttl_ms`.
    pub key: &'static str,
    /// Its value, without any secret.
    pub value: String,
    /// What the value may be.
    pub allowed: String,
    /// Another key on whose value that depends.
    pub depends_on: Option<&'static str>,
}

// === impl Invalid ===

impl Invalid {
    /// A value that is wrong by itself.
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

    /// The same, of a value that depends on another key.
    pub(super) fn depending_on(self, key: &'static str) -> Self {
        Self {
            depends_on: Some(key),
            ..self
        }
    }

    /// Checks that a text that is set does not stand without another one.
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

    /// Checks that a duration is at most another one of the configuration.
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

/// The known name nearest to what was written, if one is near enough to be meant.
pub(crate) fn closest(written: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    // One slip in three letters: more and the hint is a guess.
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
