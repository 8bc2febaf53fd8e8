//! A value that a configuration struct does not accept.

use std::fmt;

use super::Millis;

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

    /// Checks that a text that is set does not stand without another one.
    pub(super) fn unless_with(
        (key, value): (&'static str, &str),
        (other_key, other): (&'static str, &str),
    ) -> Result<(), Self> {
        if value.is_empty() || !other.is_empty() {
            return Ok(());
        }
        let allowed = format!("nothing without {other_key}, which is empty");
        Err(Self {
            depends_on: Some(other_key),
            ..Self::new(key, format!("{value:?}"), allowed)
        })
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
        Err(Self {
            depends_on: Some(other_key),
            ..Self::new(key, value.0, allowed)
        })
    }
}
