//! The grant of a lock.

use std::time::Duration;

use super::{FencingToken, LockName, Metadata, Owner, Token, Ttl};

/// A lease as the store sees it at the moment of its answer.
///
/// Times are relative to that moment, because the clocks of gateways and stores differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The fencing token of the grant.
    pub fence: FencingToken,
    /// For how long the lease was last granted: what a renewal without a TTL of its own gives.
    pub ttl: Ttl,
    /// What is left of it.
    pub expires_in: Duration,
    /// How long ago it was first granted.
    pub held_for: Duration,
    /// What is left until the hold limit, if it has one.
    pub hold_expires_in: Option<Duration>,
    /// Who asked for it.
    pub owner: Option<Owner>,
    /// What the holder attached to it.
    pub metadata: Metadata,
}

/// A lease as its holder gets it, secret included.
#[derive(Debug, Clone)]
pub struct Lease {
    /// The lock that is held.
    pub name: LockName,
    /// The secret that renews and releases it.
    pub token: Token,
    /// Its state in the store.
    pub held: HeldLease,
    /// How long the caller stood in the queue.
    pub waited: Duration,
}
