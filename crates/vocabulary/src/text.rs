//! Texts for people to read: the owner of a lease, the reason of a break, and the request to release a lock.

use std::{fmt, sync::Arc, time::Duration};

/// A text for people to read: 1 to `MAX` characters, none of them a control character.
///
/// The text is only shown, and not used for a decision, except for a [`SupersedeKey`](crate::SupersedeKey), which is
/// compared with others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Text<const MAX: usize>(Arc<str>);

/// The owner of a lease: a text for people that says who acquires the lock.
pub type Owner = Text<128>;

/// The reason of a break: a text for people that says why the lock is broken.
pub type Reason = Text<200>;

/// Why a text is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The text is empty, or has only blanks where blanks alone are not allowed.
    #[error("is missing or empty")]
    Empty,
    /// The text has more characters (first number) than allowed (second number).
    #[error("has {0} characters; at most {1} are allowed")]
    TooLong(usize, usize),
    /// The text has a control character.
    #[error("has the control character {0:?} in it")]
    Control(char),
}

// === impl Text ===

impl<const MAX: usize> Text<MAX> {
    /// The maximum length of the text, in characters.
    pub const MAX_CHARS: usize = MAX;

    /// Makes a text for people. Fails if it is empty, too long or has a control character.
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

    /// Like [`Text::new`], but also refuses a text that has only blanks.
    pub fn not_blank(text: &str) -> Result<Self, TextError> {
        let taken = Self::new(text)?;
        (!text.trim().is_empty())
            .then_some(taken)
            .ok_or(TextError::Empty)
    }

    /// The text as a string slice.
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

/// A release request: another caller wants the lock, and asks the holder to release it within a time. After that time
/// the gateway that recorded the request breaks the lease. If that gateway has died, the lease ends soon after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// The name of the API key that requested the release, if any.
    pub by: Option<Arc<str>>,
    /// Why the release is requested: a text for people to read.
    pub reason: Reason,
    /// The time left for the holder. No renewal extends the lease beyond this time and [`ReleaseRequest::BACKSTOP`].
    pub within: Duration,
}

// === impl ReleaseRequest ===

impl ReleaseRequest {
    /// How much longer than `within` the lease lasts if no gateway breaks it. The Lua scripts repeat this number.
    pub const BACKSTOP: Duration = Duration::from_secs(1);
    /// The smallest difference that makes a release request a new one: it must end earlier than the last known request
    /// by this time. Each answer takes a different time, so the end of the same request seems to come a little earlier
    /// or later. The clients in JavaScript and Python repeat this number.
    pub const SAME_WITHIN: Duration = Duration::from_millis(500);
    /// The longest `within` that a caller may set. A caller that wants the lock later can send its release request
    /// later.
    pub const MAX_WITHIN: Duration = Duration::from_hours(1);
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
