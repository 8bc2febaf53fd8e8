//! The labels of metrics: closed sets of words, so that the number of series is bounded.

use crate::with_all::with_all;

/// Labels that are known when the program is written.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

// === Outcomes ===
//
// How operations end, as the metrics tell them apart.

with_all! {
    /// How an acquire ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AcquireOutcome {
        /// A new lease.
        Granted => "granted",
        /// The lease that lived under its idempotency key.
        Again => "again",
        /// Somebody else has the lock.
        Held => "held",
        /// The request could not be had, whatever the lock is.
        Refused => "refused",
        /// The store was not there: nothing happened.
        Unavailable => "unavailable",
        /// Nobody knows.
        Unknown => "unknown",
        /// The store has what cannot be worked with.
        Failed => "failed",
    }
}

with_all! {
    /// How a renewal or a release ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LeaseOutcome {
        /// As it should.
        Done => "done",
        /// The token did not hold the lock.
        Lost => "lost",
        /// Another stream keeps the lease.
        Adopted => "adopted",
        /// The store was not there: nothing happened.
        Unavailable => "unavailable",
        /// Nobody knows.
        Unknown => "unknown",
        /// The store has what cannot be worked with.
        Failed => "failed",
    }
}

with_all! {
    /// Who found out that a lease was over.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SeenBy {
        /// A caller who came to renew.
        Renew => "renew",
        /// A caller who came to release.
        Release => "release",
        /// A stream that held it.
        Stream => "stream",
    }
}

// === impl LeaseOutcome ===

impl LeaseOutcome {
    /// As it is scraped; `done` is the word for what should have happened.
    pub fn word(self, done: &'static str) -> &'static str {
        match self {
            Self::Done => done,
            other => other.as_str(),
        }
    }
}

// === impl SeenBy ===

impl SeenBy {
    /// Who renews in this case.
    pub fn renewer(self) -> &'static str {
        match self {
            Self::Renew | Self::Release => "caller",
            Self::Stream => "stream",
        }
    }
}
