//! Why a caller is not admitted, or has reached a limit.

use std::time::Duration;

/// Why a request is refused before its operation begins: its caller is unknown, or has sent too many wrong keys or
/// tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The caller sent no API key.
    #[error("no API key was sent")]
    NoKey,
    /// The text sent does not look like an API key.
    #[error("the text that was sent is no API key")]
    NotAKey,
    /// The text sent is an API key that has lost or changed characters.
    #[error("an API key was sent that is cut off or mistyped")]
    Damaged,
    /// The API key is unknown, has another secret, or has expired. A caller that does not have the key is not told
    /// which of these is true.
    #[error("the API key is not known, or has expired")]
    Unknown,
    /// The session is over, its key or secret is gone, or no gateway with this secret has sealed the session.
    #[error("the session has ended")]
    NoSession,
    /// The exchanged key has ended, was revoked, or belongs to an API key that is gone or has other rules now.
    #[error("the key for which an ID token was exchanged has ended, or its API key has changed")]
    ExchangeOver,
    /// Too many API keys from this address were refused.
    #[error("too many API keys from this address were refused")]
    TooMany {
        /// How long until the next API key from the address is checked.
        retry_after: Duration,
    },
    /// Too many releases without an API key came from this address with tokens that held no lock.
    #[error("too many tokens from this address were wrong")]
    TooManyTokens {
        /// How long until the next token from the address is checked.
        retry_after: Duration,
    },
}

// === Excess ===
//
// The limits of an API key that a request can exceed.

/// The limit of an API key that a request exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// The API key has sent too many requests, or checked too many fencing tokens.
    #[error("the API key has sent too many requests")]
    Requests {
        /// How long until the next such request is accepted.
        retry_after: Duration,
    },
    /// The API key has too many leases.
    #[error("the API key has too many leases")]
    Leases {
        /// How long until the first of the leases ends, if none is released before.
        retry_after: Duration,
    },
    /// Too many requests with the API key wait.
    #[error("too many requests with the API key are waiting")]
    Waiters,
    /// The API key has too many streams.
    #[error("the API key has too many streams")]
    Streams,
}
