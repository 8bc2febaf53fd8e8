//! Who asked for a lock, for people to read.

use std::{fmt, sync::Arc};

/// A free text that says who asked: 1 to 128 characters, none of them a control character.
///
/// It is shown, never trusted: it takes no part in any decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner(Arc<str>);

/// Why a text is not an owner.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OwnerError {
    /// There is no text.
    #[error("is empty; leave it out instead")]
    Empty,
    /// It has more than [`Owner::MAX_CHARS`] characters.
    #[error("has {0} characters; an owner has at most 128")]
    TooLong(usize),
    /// It holds a control character.
    #[error("has the control character {0:?} in it")]
    Control(char),
}

// === impl Owner ===

impl Owner {
    /// The longest owner, in characters.
    pub const MAX_CHARS: usize = 128;

    /// Checks a text and takes it as an owner.
    pub fn new(text: &str) -> Result<Self, OwnerError> {
        let chars = text.chars().count();
        if chars == 0 {
            return Err(OwnerError::Empty);
        }
        if chars > Self::MAX_CHARS {
            return Err(OwnerError::TooLong(chars));
        }
        match text.chars().find(|c| c.is_control()) {
            Some(c) => Err(OwnerError::Control(c)),
            None => Ok(Self(text.into())),
        }
    }

    /// The owner as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_characters_and_not_bytes() {
        assert!(Owner::new(&"ä".repeat(128)).is_ok());
        assert_eq!(Owner::new(&"ä".repeat(129)), Err(OwnerError::TooLong(129)));
    }

    #[test]
    fn refuses_what_would_move_a_terminal_or_a_log_line() {
        for c in ['\n', '\r', '\0', '\u{1b}', '\u{7f}', '\u{9b}'] {
            assert_eq!(Owner::new(&format!("a{c}b")), Err(OwnerError::Control(c)));
        }
        assert_eq!(Owner::new(""), Err(OwnerError::Empty));
    }
}
