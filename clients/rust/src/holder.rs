//! The holder of a lock as a gateway describes it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::lock::{
    FencingToken,
    answers::{LockState, ReleaseRequest, Reservation},
};

/// A holder of a lock, as an answer or an event of a gateway describes it: a lease, or a foreign client that holds
/// the lock without a gateway. Fields that the caller's API key may not view are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// Whether the holder is foreign: a client that took the lock in the store itself, without a gateway.
    pub foreign: bool,
    /// The owner that the request for the lease named.
    pub owner: Option<String>,
    /// The metadata that the request for the lease carried.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The fencing token of the lease.
    pub fencing_token: Option<u64>,
    /// How the lease holds the lock: `exclusive` (alone) or `shared` (together with other leases).
    pub mode: Option<String>,
    /// The slot of the lease, if it has one.
    pub slot: Option<u16>,
    /// The order with which the lease was granted, if it has one and this caller may see it.
    pub order: Option<u64>,
    /// Why the lease goes back to an older order on purpose, if it does and this caller may see it.
    pub rollback: Option<String>,
    /// The mark of a foreign holder: a hash that distinguishes this holder from other foreign holders.
    pub foreign_mark: Option<String>,
    /// The time left until the lease expires, in milliseconds; `None` if the holder has no expiry.
    pub expires_in_ms: Option<u64>,
    /// The TTL of the lease's last grant or renewal, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// The time left until the hold limit of the lease, in milliseconds, if the lease has a hold limit.
    pub hold_expires_in_ms: Option<u64>,
    /// When the lease ends, by the clock of the gateway, as an RFC 3339 time.
    pub expires_at: Option<String>,
    /// When the lease was granted, by the clock of the gateway, as an RFC 3339 time.
    pub acquired_at: Option<String>,
    /// The request for several locks that the lease is a part of, if it is one.
    pub group: Option<HolderGroup>,
    /// The reservation that the lease is, if it is one and this caller may see it.
    pub reservation: Option<Reservation>,
    /// Whether the lease only keeps the lock for a group that is not complete: its caller waits for another lock.
    pub waiting: bool,
    /// The lock that the group of this lease waits for; only in an inspection.
    pub waits_for: Option<Box<AwaitedLock>>,
    /// The release request, if a caller has asked the holder to release the lock and this caller may see the request.
    pub release_requested: Option<ReleaseRequest>,
}

/// The lock that a group waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AwaitedLock {
    /// The name of the lock, if this caller may view the lock.
    pub name: Option<String>,
    /// For how long the group has waited for the lock, in milliseconds.
    pub since_ms: u64,
    /// The state of the lock, if this caller may view the lock.
    pub state: Option<LockState>,
    /// The first holders of the lock; empty if the lock has no holder, or if this caller may not view the lock.
    pub holders: Vec<Holder>,
    /// The number of all holders of the lock.
    pub holder_count: u64,
}

/// A request for several locks, as a holder of one of them shows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct HolderGroup {
    /// The first name of the group; `None` if the caller's API key may not view that lock.
    pub first: Option<String>,
    /// The number of locks in the group.
    pub count: u8,
}

// === impl Holder ===

impl Holder {
    /// Whether all numbers of the holder are small enough for JSON to carry them exactly.
    pub(crate) fn is_exact(&self) -> bool {
        are_exact(&[
            self.fencing_token,
            self.ttl_ms,
            self.expires_in_ms,
            self.hold_expires_in_ms,
            self.release_requested.as_ref().map(|it| it.within_ms),
            self.waits_for.as_ref().map(|it| it.since_ms),
        ])
    }
}

/// Whether all numbers are at most 2^53 - 1, the largest that JSON carries exactly. Gateways send no larger numbers.
pub(crate) fn are_exact(numbers: &[Option<u64>]) -> bool {
    let numbers = numbers.iter().flatten();
    numbers.copied().all(|it| it <= FencingToken::MAX.get())
}
