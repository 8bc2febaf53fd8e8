//! Parts of the answers that gateways write and clients read. A client accepts an answer of an older gateway, in which
//! optional fields are missing, and of a newer one, which has more fields.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

/// A lease that was released before its `min_hold_ms` was over: until then the lock, or the slot, is granted to
/// no caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Rest {
    /// The fencing token of the released lease, for a break that ends the rest.
    #[cfg_attr(
        feature = "openapi",
        schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)
    )]
    pub fencing_token: u64,
    /// The slot that rests; null if the lease had none.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub slot: Option<u16>,
    /// Time until the rest is over.
    pub available_in_ms: u64,
}

/// A person holds the lock until a time: nothing prolongs the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Reservation {
    /// When the lease ends, by the clock of the store.
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub until: String,
    /// Why the lock is reserved.
    pub reason: String,
    /// The name of the API key that reserved the lock, and that may end the reservation; null if the gateway has no
    /// keys.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub reserved_by: Option<String>,
}

/// A caller wants the lock: its holder is asked to release it in time. If the lease has not ended by then, it
/// is broken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseRequest {
    /// The name of the API key that asked; null if the gateway has no keys.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub by: Option<String>,
    /// The reason that the caller gave.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub reason: String,
    /// Time left to release the lock, rounded down.
    pub within_ms: u64,
    /// For a client: the lock whose release is requested, if the lock belongs to a group.
    #[serde(skip)]
    pub name: Option<String>,
}

// === impl ReleaseRequest ===

impl ReleaseRequest {
    /// The time that was left when the gateway answered.
    #[must_use]
    pub fn within(&self) -> Duration {
        Duration::from_millis(self.within_ms)
    }
}

/// The grant by which a lock remembers the highest order that it was granted for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct OrderGrant {
    /// When the lock was granted, by the clock of the gateway.
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub at: String,
    /// The name of the API key that was granted the lock; null if the gateway has no keys.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub by: Option<String>,
    /// Owner text of the lease.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub owner: Option<String>,
}

/// A request that waits for a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Waiter {
    /// The position in the queue: 1 is served next.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub position: u64,
    /// Owner text of the waiter, for people to read.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub owner: Option<String>,
    /// What the waiter wants to attach to its lease.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub metadata: BTreeMap<String, String>,
    /// The requested mode, `exclusive` or `shared`.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub mode: Option<String>,
    /// The requested limit; null without one.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub limit: Option<u16>,
    /// How long the request has waited so far.
    pub waited_ms: u64,
}

/// Where a list has found the text of a search, if the text is not in the name of the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Match {
    /// `holder`, or `waiter` for one of the first 100 waiters.
    pub of: String,
    /// `owner` or `metadata`.
    pub field: String,
    /// The name of the metadata entry; null for `owner`.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub name: Option<String>,
    /// The whole owner, or the whole value of the metadata entry.
    pub value: String,
}

/// Whether a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum LockState {
    /// The lock has a holder.
    Held,
    /// The lock has no holder, and is granted to no caller until its rest is over.
    Resting,
    /// The lock has no holder. With waiters: the lock is just passing to the first of them.
    Free,
}
