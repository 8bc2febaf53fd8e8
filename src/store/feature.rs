//! The features that not every store supports.

/// A feature of an acquire that not every store supports: a quorum of Redis servers has none of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreFeature {
    /// A shared lease.
    Sharing,
    /// A minimum hold, after whose release the lock rests.
    MinHold,
    /// A waiter that takes an older waiter out of the queue.
    Supersedes,
    /// A reservation.
    Reserve,
    /// An order, below which the lock is granted no more.
    Order,
}
