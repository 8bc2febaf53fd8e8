//! What somebody has who has shown a key in a browser: the id of its secret, for a time.

use std::{fmt, time::SystemTime};

use super::ApiKeyId;

/// Somebody has shown a key, and need not do so again for a while.
///
/// It is of one secret of the key: without that one it is over, also if the key has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Session {
    /// The secret that was shown.
    pub(super) secret: ApiKeyId,
    /// When it is over, in whole milliseconds.
    pub(super) until: SystemTime,
}

/// A session as its browser keeps it. As good as the key while it lasts, so it never prints itself.
#[derive(Clone)]
pub struct SealedSession(Box<str>);

// === impl SealedSession ===

impl SealedSession {
    /// How each of them begins, so that it is known as a secret wherever it turns up.
    pub(super) const PREFIX: &str = "lgs_";

    pub(super) fn new(content: &str) -> Self {
        Self(format!("{}{content}", Self::PREFIX).into())
    }

    /// Whether there may be a session in a text: then it is nothing to write down.
    pub fn is_in(text: &str) -> bool {
        text.contains(Self::PREFIX)
    }

    /// The text, for the one who has shown the key.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SealedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedSession(..)")
    }
}
