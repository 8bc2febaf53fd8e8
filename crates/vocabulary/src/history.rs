//! The history of a lock, as gateways send it to clients.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The history of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct History {
    /// The name of the lock.
    pub name: String,
    /// The last leases, newest first.
    #[cfg_attr(feature = "openapi", schema(max_items = 500))]
    pub entries: Vec<HistoryEntry>,
    /// The leases that were too short for an entry; null if there were none.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub shorter_leases: Option<ShorterLeases>,
    /// How many records of this lock were dropped, because the store did not take them in time: so many facts
    /// about leases are missing.
    pub dropped: u64,
    /// Whether this gateway records leases. If not, `entries` is empty.
    pub enabled: bool,
    /// For a client: the history as the gateway sent it, as JSON.
    #[serde(skip)]
    pub json: String,
}

/// A lease in the history of a lock.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryEntry {
    /// The fencing token of the lease.
    #[cfg_attr(
        feature = "openapi",
        schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)
    )]
    pub fencing_token: u64,
    /// `exclusive` or `shared`; null if the beginning of the lease was not recorded.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub mode: Option<String>,
    /// The slot of a lease that was shared with a limit; null otherwise.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub slot: Option<u16>,
    /// Owner text of the lease, for people to read.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub owner: Option<String>,
    /// Metadata of the lease, as far as an entry of 1 KiB has room for it.
    pub metadata: BTreeMap<String, String>,
    /// The order of the lease. Only if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "openapi",
        schema(nullable = false, maximum = 9_007_199_254_740_991_u64)
    )]
    pub order: Option<u64>,
    /// Why the lease went back to an older order on purpose. Only if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub rollback: Option<String>,
    /// When the lease was granted; null if that was not recorded.
    #[cfg_attr(feature = "openapi", schema(required = true, format = "date-time"))]
    pub acquired_at: Option<String>,
    /// The caller that acquired the lease: the name of its API key, or its address; null if it is not known.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub acquired_by: Option<String>,
    /// How long the request waited for the lock; null if that was not recorded.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub waited_ms: Option<u64>,
    /// When the lease ended; null while it holds the lock, or if its end was not recorded.
    #[cfg_attr(feature = "openapi", schema(required = true, format = "date-time"))]
    pub ended_at: Option<String>,
    /// How the lease ended: `released`, `expired`, `broken`, or `lost` (gone before its time, and no gateway
    /// has ended it); null while it holds the lock, or if its end was not recorded.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub ended: Option<String>,
    /// The caller that released or broke the lease; null if it is not known, and if a gateway released the lease
    /// because its caller was gone.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub ended_by: Option<String>,
    /// The reason of a break; for a release by a gateway, why the gateway released the lease.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub reason: Option<String>,
    /// Only if the lease has ended and no gateway has recorded that: it ended at this time at the latest.
    #[cfg_attr(feature = "openapi", schema(required = true, format = "date-time"))]
    pub ended_at_latest: Option<String>,
    /// Other events of the lease, oldest first.
    pub notes: Vec<HistoryNote>,
}

/// Something that happened to a lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HistoryNote {
    /// The kind of the event: `release-requested`, `rest-ended` (a break ended the rest of the lock after the
    /// release of this lease), `stale-write-refused` (a check refused the fencing token after the lease had
    /// ended), or `order-set` (a caller set the order that the lock remembers, when this lease was the last in the
    /// history).
    pub kind: String,
    /// When it happened.
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub at: String,
    /// The caller that caused the event; null if it is not known.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub by: Option<String>,
    /// The reason that was given; null without a reason. Of `order-set` it begins with the new order, or with
    /// `none`.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub reason: Option<String>,
}

/// Leases that were too short for entries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShorterLeases {
    /// How many leases there were.
    pub count: u64,
    /// When the first of them ended.
    #[cfg_attr(feature = "openapi", schema(format = "date-time"))]
    pub since: String,
}
