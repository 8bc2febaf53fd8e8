//! The leases of a group as their holder gets them.

use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::lock::{HeldLease, Lease};

use super::{
    lease_body::{MetadataBody, timestamp},
    millis::millis,
    release_request_body::ReleaseRequestBody,
};

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
    /// For how long the leases were granted.
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

/// One of the leases.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupPart)]
pub(in crate::http) struct GroupPartBody {
    /// The lock that is held.
    name: String,
    /// A number that is larger for each new grant of this lock.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64)]
    fencing_token: u64,
    /// `exclusive`, or `shared` with others that hold the lock.
    mode: &'static str,
    /// The slot of a shared lease whose request had a limit; else null.
    #[schema(required = true)]
    slot: Option<u16>,
    /// What is left of it.
    expires_in_ms: u64,
    /// When it was granted, by the clock of the gateway. For display only.
    #[schema(format = DateTime)]
    acquired_at: String,
    /// What is left until its `max_hold_ms`; null if it was not given.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Only if somebody has asked for the lock: finish, and release it in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ReleaseRequestBody, required = false)]
    release_requested: Option<ReleaseRequestBody>,
}

// === impl GroupLeaseBody ===

impl GroupLeaseBody {
    /// The leases as they are now. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(leases: Vec<Lease>, waited: Duration, now: SystemTime) -> Self {
        let as_of = Instant::now();
        let token = leases.first().map(|lease| lease.token.expose());
        let held: Vec<(String, HeldLease)> = leases
            .into_iter()
            .map(|lease| (lease.name.as_str().to_owned(), lease.held.at(as_of)))
            .collect();
        let left = held.iter().map(|(_, lease)| lease.good_for()).min();
        let left = left.unwrap_or_default();
        let renew_after = held.iter().map(|(_, lease)| lease.renew_after()).min();
        let hold_left = held.iter().filter_map(|(_, lease)| lease.hold_expires_in);
        let hold_left = hold_left.min();
        let first = held.first().map(|(_, lease)| lease.clone());
        Self {
            leases: held
                .into_iter()
                .map(|(name, lease)| GroupPartBody::new(name, &lease, now))
                .collect(),
            token: token.unwrap_or_default(),
            ttl_ms: first.as_ref().map_or(0, |lease| lease.ttl.as_millis()),
            expires_in_ms: millis(left),
            expires_at: timestamp(now.checked_add(left)),
            renew_after_ms: millis(renew_after.unwrap_or_default()),
            hold_expires_in_ms: hold_left.map(millis),
            owner: first
                .as_ref()
                .and_then(|lease| Some(lease.owner.as_ref()?.as_str().to_owned())),
            metadata: MetadataBody(first.map(|lease| lease.metadata).unwrap_or_default()),
            waited_ms: millis(waited),
        }
    }
}

// === impl GroupPartBody ===

impl GroupPartBody {
    fn new(name: String, lease: &HeldLease, now: SystemTime) -> Self {
        Self {
            name,
            fencing_token: lease.fence.get(),
            mode: lease.mode.as_str(),
            slot: lease.mode.slot(),
            expires_in_ms: millis(lease.good_for()),
            acquired_at: timestamp(now.checked_sub(lease.held_for)),
            hold_expires_in_ms: lease.hold_expires_in.map(millis),
            release_requested: ReleaseRequestBody::of_lease(lease),
        }
    }
}
