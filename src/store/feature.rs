//! The features that not every store supports.

/// What an attempt may ask for and not every store supports.
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
}
