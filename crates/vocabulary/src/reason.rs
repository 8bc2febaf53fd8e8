//! Why somebody breaks a lock, for people to read.

use std::{fmt, sync::Arc};

/// A free text that says why: 1 to 200 characters, none of them a control character.
///
/// It is written down, never trusted: it takes no part in any decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason(Arc<str>);

/// Why a text is no reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReasonError {
    /// There is no text.
    #[error("is missing or empty; say why the lock is broken")]
    Empty,
    /// It has more than [`Reason::MAX_CHARS`] characters.
    #[error("has {0} characters; a reason has at most 200")]
    TooLong(usize),
    /// It holds a control character.
    #[error("has the control character {0:?} in it")]
    Control(char),
}

// === impl Reason ===

impl Reason {
    /// The longest reason, in characters.
    pub const MAX_CHARS: usize = 200;

    /// Checks a text and takes it as a reason.
    pub fn new(text: &str) -> Result<Self, ReasonError> {
        let chars = text.chars().count();
        if text.trim().is_empty() {
            return Err(ReasonError::Empty);
        }
        if chars > Self::MAX_CHARS {
            return Err(ReasonError::TooLong(chars));
        }
        match text.chars().find(|c| c.is_control()) {
            Some(c) => Err(ReasonError::Control(c)),
            None => Ok(Self(text.into())),
        }
    }

    /// The reason as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_a_line_of_text() {
        let longest = "ä".repeat(Reason::MAX_CHARS);
        for text in ["x", "deploy 4711 hangs, asked in #ops", longest.as_str()] {
            assert_eq!(Reason::new(text).unwrap().as_str(), text);
        }
    }

    #[test]
    fn says_what_is_wrong() {
        assert_eq!(Reason::new(""), Err(ReasonError::Empty));
        assert_eq!(Reason::new("  "), Err(ReasonError::Empty));
        let long = "ä".repeat(Reason::MAX_CHARS + 1);
        assert_eq!(Reason::new(&long), Err(ReasonError::TooLong(201)));
        for c in ['\n', '\u{1b}', '\0', '\u{85}'] {
            assert_eq!(Reason::new(&format!("a{c}b")), Err(ReasonError::Control(c)));
        }
    }
}
