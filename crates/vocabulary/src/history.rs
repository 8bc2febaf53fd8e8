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

/// How long leases of a lock usually last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usual {
    /// The number of leases that were measured.
    pub leases: usize,
    /// Half of the leases were held for at most this time.
    pub median_ms: u64,
    /// 95 of 100 leases were held for at most this time.
    pub p95_ms: u64,
}

// === impl Usual ===

impl Usual {
    /// The least number of leases of which a usual time can be said.
    pub const MIN_LEASES: usize = 10;

    /// How long leases usually last that have lasted these times, in milliseconds; `None` if there are too few.
    pub fn of(mut held_ms: Vec<u64>) -> Option<Self> {
        held_ms.sort_unstable();
        let leases = held_ms.len();
        // The smallest time that enough leases do not exceed.
        let part = |percent: usize| held_ms[(leases * percent).div_ceil(100) - 1];
        (leases >= Self::MIN_LEASES).then(|| Self {
            leases,
            median_ms: part(50),
            p95_ms: part(95),
        })
    }

    /// How many times as long as the median a lease was held that is held for longer than 95 of 100 leases, and for
    /// more than twice the median; `None` if the lease is not held for unusually long.
    pub fn times_longer(&self, held_ms: u64) -> Option<u64> {
        let times = held_ms / self.median_ms.max(1);
        (held_ms > self.p95_ms && times >= 2).then_some(times)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_leases_say_how_long_a_lock_is_usually_held() {
        assert_eq!(Usual::of((1..=9).collect()), None);
        let usual = Usual::of((1..=10).rev().map(|s| s * 1_000).collect()).unwrap();
        assert_eq!(
            (usual.leases, usual.median_ms, usual.p95_ms),
            (10, 5_000, 10_000)
        );
        let usual = Usual::of((1..=100).collect()).unwrap();
        assert_eq!((usual.median_ms, usual.p95_ms), (50, 95));
        assert_eq!(Usual::of(vec![0; 10]).unwrap().times_longer(3), Some(3));
    }

    #[test]
    fn a_lease_is_held_for_unusually_long_beyond_the_rest_and_twice_the_median() {
        let usual = Usual {
            leases: 10,
            median_ms: 40_000,
            p95_ms: 70_000,
        };
        for (held, times) in [
            (40_000, None),
            (70_000, None),
            (79_999, None),
            (80_000, Some(2)),
            (259_000, Some(6)),
        ] {
            assert_eq!(usual.times_longer(held), times, "{held}");
        }
    }
}
