//! The holder of a lock, and the request to release it.

use std::{collections::BTreeMap, time::Duration};

use serde::Deserialize;

use crate::lock::FencingToken;

/// The holder of a lock, as an answer or an event of a gateway describes it: a lease, or a foreign client that holds the lock
/// without a gateway. Fields that the caller's API key may not view are absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Holder {
    /// Whether it took the lock in the store itself, without a gateway.
    pub foreign: bool,
    /// The owner that the request for the lease named.
    pub owner: Option<String>,
    /// The metadata that the request for the lease carried.
    pub metadata: Option<BTreeMap<String, String>>,
    /// The fencing token of the lease.
    pub fencing_token: Option<u64>,
    /// Whether it holds the lock alone or beside others: `exclusive` or `shared`.
    pub mode: Option<String>,
    /// The slot of its lease.
    pub slot: Option<u16>,
    /// A hash that distinguishes one foreign client from another, if it is known.
    pub foreign_mark: Option<String>,
    /// The remaining time of the lease in milliseconds; `None` if it has no expiry.
    pub expires_in_ms: Option<u64>,
    /// For how long the lease was last granted, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// The remaining time until the hold limit of the lease in milliseconds, if it has a limit.
    pub hold_expires_in_ms: Option<u64>,
    /// When the lease was granted, by the clock of the gateway, as RFC 3339 has it.
    pub acquired_at: Option<String>,
    /// Present if it was asked to release the lock, and the caller may know.
    pub release_requested: Option<ReleaseRequest>,
}

// === impl Holder ===

impl Holder {
    /// Whether JSON carries its numbers exactly.
    pub(crate) fn is_exact(&self) -> bool {
        are_exact(&[
            self.fencing_token,
            self.ttl_ms,
            self.expires_in_ms,
            self.hold_expires_in_ms,
            self.release_requested.as_ref().map(|it| it.within_ms),
        ])
    }
}

/// Whether JSON carries these numbers exactly, as it does every number of a gateway.
pub(crate) fn are_exact(numbers: &[Option<u64>]) -> bool {
    let numbers = numbers.iter().flatten();
    numbers.copied().all(|it| it <= FencingToken::MAX.get())
}

// === Release request ===

/// A caller has asked the holder to release the lock. If the holder does not do so in time, the gateway breaks the lease.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReleaseRequest {
    /// The name of the API key that asked, if any.
    pub by: Option<String>,
    /// Why, as they have said it.
    #[serde(default)]
    pub reason: String,
    /// How much time was left when the gateway answered, in milliseconds.
    pub within_ms: u64,
    /// The lock that was asked for, if several were acquired as one.
    #[serde(skip)]
    pub name: Option<String>,
}

// === impl ReleaseRequest ===

impl ReleaseRequest {
    /// How much time was left when the gateway answered.
    #[must_use]
    pub fn within(&self) -> Duration {
        Duration::from_millis(self.within_ms)
    }
}
