//! Why somebody is not let in.

use std::time::Duration;

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No key was sent.
    #[error("no API key was sent")]
    NoKey,
    /// What was sent does not look like a key.
    #[error("what was sent is no API key")]
    NotAKey,
    /// What was sent has lost or changed characters.
    #[error("an API key was sent that is cut off or mistyped")]
    Damaged,
    /// There is no such key, or its secret is another, or it has expired. Which of these is told to
    /// nobody who does not have the key.
    #[error("the API key is not known, or has expired")]
    Unknown,
    /// The session is over, or its key or the secret that was shown for it is gone, or it is none of
    /// ours.
    #[error("the session has ended")]
    NoSession,
    /// Too many keys were refused that came from this address.
    #[error("too many API keys from this address were refused")]
    TooMany {
        /// When the next is looked at.
        retry_after: Duration,
    },
    /// Too many releases without a key came from this address whose tokens held nothing.
    #[error("too many tokens from this address were wrong")]
    TooManyTokens {
        /// When the next is looked at.
        retry_after: Duration,
    },
}

// === Excess ===
//
// More than a key may have.

/// More than a key may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// Too many requests.
    #[error("the API key has sent too many requests")]
    Requests {
        /// When the next is taken.
        retry_after: Duration,
    },
    /// Too many leases.
    #[error("the API key has too many leases")]
    Leases {
        /// When one of them ends at the earliest, if none is released.
        retry_after: Duration,
    },
    /// Too many requests that wait.
    #[error("too many requests with the API key are waiting")]
    Waiters,
    /// Too many streams.
    #[error("the API key has too many streams")]
    Streams,
}
