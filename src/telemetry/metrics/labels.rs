//! The labels of metrics: closed sets of words, so that the number of series is bounded.

use crate::with_all::with_all;

/// Labels whose values are known at compile time.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

// === Outcomes ===
//
// The outcomes of operations, as values of metric labels.

with_all! {
    /// The outcome of an acquire.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AcquireOutcome {
        /// A new lease was granted.
        Granted => "granted",
        /// The acquire was a repeated request, and got the lease that was granted earlier under its idempotency key.
        Again => "again",
        /// Another lease holds the lock, or the wait ran out.
        Held => "held",
        /// The gateway refused the request for a reason other than a held lock.
        Refused => "refused",
        /// The store was not available, and nothing happened.
        Unavailable => "unavailable",
        /// The outcome is unknown: the lock may have been granted.
        Unknown => "unknown",
        /// The store has foreign data, or no fencing token is left.
        Failed => "failed",
    }
}

with_all! {
    /// The outcome of a renewal or a release.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum LeaseOutcome {
        /// The lease was renewed or released.
        Done => "done",
        /// The token did not hold the lock.
        Lost => "lost",
        /// Another stream has taken over the lease (adopted it) and keeps it.
        Adopted => "adopted",
        /// The store was not available, and nothing happened.
        Unavailable => "unavailable",
        /// The outcome is unknown: the command may have been carried out.
        Unknown => "unknown",
        /// The store has foreign data, so the renewal or the release failed.
        Failed => "failed",
    }
}

with_all! {
    /// Which operation found that a lease had ended while its holder still used it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum SeenBy {
        /// A caller tried to renew the lease.
        Renew => "renew",
        /// A caller tried to release the lease.
        Release => "release",
        /// The hold stream that kept the lease found that it had ended.
        Stream => "stream",
    }
}

// === impl LeaseOutcome ===

impl LeaseOutcome {
    /// The outcome as a label value; `done` is the word for [`LeaseOutcome::Done`].
    pub fn word(self, done: &'static str) -> &'static str {
        match self {
            Self::Done => done,
            other => other.as_str(),
        }
    }
}

// === impl SeenBy ===

impl SeenBy {
    /// The label value for who renews the lease: the caller or the hold stream.
    pub fn renewer(self) -> &'static str {
        match self {
            Self::Renew | Self::Release => "caller",
            Self::Stream => "stream",
        }
    }
}
