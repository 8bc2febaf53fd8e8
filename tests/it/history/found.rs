//! A broken promise.

use std::fmt;

/// An invariant, by its number in the list of promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Invariant {
    /// Every answer is one that may be given.
    Contract,
    /// Fences are unique.
    I1,
    /// Fences rise in real-time order.
    I2,
    /// No more hold a lock together than may.
    I3,
    /// The fenced resource never goes back and loses nothing.
    I4,
    /// There is no fence that nobody asked for.
    I5,
    /// No grant is lost.
    I6,
    /// Hand-offs are bounded.
    I7,
    /// No orphan stays.
    I8,
    /// Only the holder renews and releases.
    I9,
    /// There is one fence for an idempotency key.
    I10,
    /// Waiters are served in order.
    I11,
    /// The lock is linearizable.
    I12,
    /// Slots are distinct, and below the limit.
    I13,
    /// Groups are all or nothing, and are served.
    I14,
    /// Who is asked to release a lease hears of it, and has it no longer than until then.
    I15,
}

/// A broken promise.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) lock: String,
    /// When it could be seen.
    pub(crate) at: u64,
    pub(crate) what: String,
}

// === impl Violation ===

impl Violation {
    pub(crate) fn new(invariant: Invariant, lock: &str, at: u64, what: String) -> Self {
        Self {
            invariant,
            lock: lock.to_owned(),
            at,
            what,
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
