//! More than a key may have.

use std::time::Duration;

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
