//! The leases of a group as their holder gets them.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use utoipa::ToSchema;

use crate::lock::{Lease, Token};

use super::lease_view::{GroupPartBody, LeaseView, MetadataBody, Told, millis};

/// Leases of several locks, as only their holder gets to see them: they have the token.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupLease, example = json!({
    "leases": [
        {"name": "cluster:eu", "fencing_token": 1_795_170_000_000_042_u64, "mode": "exclusive", "slot": null,
         "expires_in_ms": 30_000, "acquired_at": "2026-11-20T12:00:00.000Z", "hold_expires_in_ms": null},
        {"name": "database", "fencing_token": 1_795_170_000_000_007_u64, "mode": "exclusive", "slot": null,
         "expires_in_ms": 30_000, "acquired_at": "2026-11-20T12:00:00.000Z", "hold_expires_in_ms": null},
    ],
    "token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU",
    "ttl_ms": 30_000,
    "expires_in_ms": 30_000,
    "expires_at": "2026-11-20T12:00:30.000Z",
    "renew_after_ms": 10_000,
    "hold_expires_in_ms": null,
    "owner": "ci-runner-7",
    "metadata": {"job": "4711"},
    "waited_ms": 0,
}))]
pub(in crate::http) struct GroupLeaseBody {
    /// A lease of each lock, in the order of the names.
    #[schema(min_items = 2, max_items = 16)]
    leases: Vec<GroupPartBody>,
    /// The secret that renews and releases all of them, together or one by one. Whoever has it may do both.
    #[schema(min_length = 43, max_length = 43)]
    token: String,
    /// The TTL of the lease that ends first.
    ttl_ms: u64,
    /// What is left of the lease that ends first. Count it as that of one lease.
    expires_in_ms: u64,
    /// When the first lease ends, by the clock of the gateway. For display only: work with `expires_in_ms`.
    #[schema(format = DateTime)]
    expires_at: String,
    /// After how long to renew them: a third of what is left.
    renew_after_ms: u64,
    /// What is left until the first `max_hold_ms`, past which no renewal goes; null if it was not given. It counts from the
    /// grant of each lock, so the wait for the others is a part of it.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Who asked for them; null if the request named nobody.
    #[schema(required = true)]
    owner: Option<String>,
    /// What was attached to them.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    metadata: MetadataBody,
    /// How long the request waited for all locks.
    waited_ms: u64,
}

// === impl GroupLeaseBody ===

impl GroupLeaseBody {
    /// The leases as they are now. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(leases: Vec<Lease>, waited: Duration, now: SystemTime) -> Self {
        let leases = leases
            .into_iter()
            .map(|lease| LeaseView::of_own(lease, now));
        let leases: Vec<_> = leases.collect();
        let least = |field: fn(&LeaseView) -> Option<u64>| leases.iter().filter_map(field).min();
        let ends_first = leases.iter().min_by_key(|lease| lease.expires_in_ms);
        let ends_first = ends_first.cloned().unwrap_or_default();
        let token = ends_first.token.as_ref().map(Token::expose);
        Self {
            token: token.unwrap_or_default(),
            ttl_ms: ends_first.ttl_ms.unwrap_or_default(),
            expires_in_ms: ends_first.expires_in_ms.unwrap_or_default(),
            expires_at: ends_first
                .expires_at
                .map(|at| at.to_string())
                .unwrap_or_default(),
            renew_after_ms: least(|lease| lease.renew_after_ms).unwrap_or_default(),
            hold_expires_in_ms: least(|lease| lease.hold_expires_in_ms),
            owner: ends_first.owner.map(|owner| owner.as_str().to_owned()),
            metadata: ends_first.metadata,
            waited_ms: millis(waited),
            leases: leases.into_iter().map(Told).collect(),
        }
    }
}
