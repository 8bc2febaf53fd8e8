//! Texts for people: the owner of a lease, the reason of a break, and the request to release a lock.

use std::{fmt, sync::Arc, time::Duration};

/// A free text: 1 to `MAX` characters, none of them a control character.
///
/// It is shown, never trusted: it takes no part in any decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Text<const MAX: usize>(Arc<str>);

/// Who asked for a lock.
pub type Owner = Text<128>;

/// Why a lock is broken.
pub type Reason = Text<200>;

/// Why a text cannot be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// There is no text, or nothing but blanks where a text must say something.
    #[error("is missing or empty")]
    Empty,
    /// It has more characters than the second number.
    #[error("has {0} characters; at most {1} are allowed")]
    TooLong(usize, usize),
    /// It holds a control character.
    #[error("has the control character {0:?} in it")]
    Control(char),
}

// === impl Text ===

impl<const MAX: usize> Text<MAX> {
    /// The longest text, in characters.
    pub const MAX_CHARS: usize = MAX;

    /// Checks a text and takes it.
    pub fn new(text: &str) -> Result<Self, TextError> {
        let chars = text.chars().count();
        if chars == 0 {
            return Err(TextError::Empty);
        }
        if chars > MAX {
            return Err(TextError::TooLong(chars, MAX));
        }
        match text.chars().find(|c| c.is_control()) {
            Some(c) => Err(TextError::Control(c)),
            None => Ok(Self(text.into())),
        }
    }

    /// The same for a text that must say something: blanks alone are refused.
    pub fn not_blank(text: &str) -> Result<Self, TextError> {
        let taken = Self::new(text)?;
        (!text.trim().is_empty())
            .then_some(taken)
            .ok_or(TextError::Empty)
    }

    /// The text itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<const MAX: usize> fmt::Display for Text<MAX> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === Release request ===

/// Somebody wants the lock: its holder is asked to release it within a time. Then the gateway that has asked breaks the
/// lease; if that gateway has died, the lease ends by itself soon after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The name of the API key that asked, if any.
    pub by: Option<Arc<str>>,
    /// Why, for people to read.
    pub reason: Reason,
    /// How much time the holder has. No renewal goes beyond it, and [`ReleaseRequest::BACKSTOP`].
    pub within: Duration,
}

// === impl ReleaseRequest ===

impl ReleaseRequest {
    /// How much longer than its holder was told a lease lasts at most. The scripts have it as a number, too.
    pub const BACKSTOP: Duration = Duration::from_secs(1);
    /// A request whose end is at most so much sooner than that of the last one counts as the same request: each answer
    /// takes another time, so the same end seems to come a little sooner or later. The clients in JavaScript and Python
    /// have it as a number, too.
    pub const SAME_WITHIN: Duration = Duration::from_millis(500);
    /// The longest time that a holder may be given: whoever wants a lock later than that can ask again.
    pub const LONGEST: Duration = Duration::from_hours(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_characters_and_not_bytes() {
        assert!(Owner::new(&"ä".repeat(128)).is_ok());
        let long = Owner::new(&"ä".repeat(129));
        assert_eq!(long, Err(TextError::TooLong(129, 128)));
        assert!(Reason::new(&"ä".repeat(200)).is_ok());
        assert_eq!(Reason::new(""), Err(TextError::Empty));
        assert!(Owner::new(" ").is_ok());
        assert_eq!(Reason::not_blank(" "), Err(TextError::Empty));
    }

    #[test]
    fn refuses_what_would_move_a_terminal_or_a_log_line() {
        for c in ['\n', '\r', '\0', '\u{1b}', '\u{7f}', '\u{9b}'] {
            assert_eq!(Owner::new(&format!("a{c}b")), Err(TextError::Control(c)));
        }
    }
}
