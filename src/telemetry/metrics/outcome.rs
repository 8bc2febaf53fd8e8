//! How operations end, as the metrics tell them apart.

use crate::with_all::with_all;

with_all! {
    /// How an acquire ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AcquireOutcome {
        /// A new lease.
        Granted,
        /// The lease that lived under its idempotency key.
        Again,
        /// Somebody else has the lock.
        Held,
        /// The request could not be had, whatever the lock is.
        Refused,
        /// The store was not there: nothing happened.
        Unavailable,
        /// Nobody knows.
        Unknown,
        /// The store has what cannot be worked with.
        Failed,
    }
}

with_all! {
    /// How a renewal or a release ended.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LeaseOutcome {
        /// As it should.
        Done,
        /// The token did not hold the lock.
        Lost,
        /// Another stream keeps the lease.
        Adopted,
        /// The store was not there: nothing happened.
        Unavailable,
        /// Nobody knows.
        Unknown,
        /// The store has what cannot be worked with.
        Failed,
    }
}

with_all! {
    /// Who found out that a lease was over.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SeenBy {
        /// A caller who came to renew.
        Renew,
        /// A caller who came to release.
        Release,
        /// A stream that held it.
        Stream,
    }
}

// === impl AcquireOutcome ===

impl AcquireOutcome {
    /// As it is scraped.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Again => "again",
            Self::Held => "held",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

// === impl LeaseOutcome ===

impl LeaseOutcome {
    /// As it is scraped; `done` is the word for what should have happened.
    pub fn as_str(self, done: &'static str) -> &'static str {
        match self {
            Self::Done => done,
            Self::Lost => "lost",
            Self::Adopted => "adopted",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

// === impl SeenBy ===

impl SeenBy {
    /// As it is scraped.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Renew => "renew",
            Self::Release => "release",
            Self::Stream => "stream",
        }
    }

    /// Who renews in this case.
    pub fn renewer(self) -> &'static str {
        match self {
            Self::Renew | Self::Release => "caller",
            Self::Stream => "stream",
        }
    }
}
