//! A lock as everybody may see it.

use std::time::SystemTime;

use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::{
    auth::Access,
    lock::{HeldLease, Limit, LockName, Sharing},
    store::contract::{Holder, Inspection, SHOWN_HOLDERS, Waiter},
};

use super::{
    MetadataBody, lease_body::timestamp, millis::millis, release_request_body::ReleaseRequestBody,
};

/// A lock, held or free. It never shows a token.
#[derive(Serialize, ToSchema)]
#[schema(as = Lock, example = json!({
    "name": "deploy:prod",
    "state": "held",
    "holders": [{
        "owner": "ci-runner-7",
        "metadata": {"job": "4711"},
        "fencing_token": 1_795_170_000_000_042_u64,
        "mode": "exclusive",
        "slot": null,
        "ttl_ms": 30_000,
        "expires_in_ms": 21_480,
        "expires_at": "2026-11-20T12:00:30.000Z",
        "acquired_at": "2026-11-20T12:00:00.000Z",
        "hold_expires_in_ms": null,
        "foreign": false,
        "foreign_mark": null,
        "group": null,
    }],
    "holder_count": 1,
    "waiters": [{"position": 1, "owner": "ci-runner-9", "mode": "exclusive", "limit": null, "waited_ms": 8_504}],
    "waiter_count": 1,
}))]
pub(in crate::http) struct LockBody {
    /// The lock.
    name: String,
    /// Whether somebody holds it.
    state: LockState,
    /// Who holds it: nobody if it is free; of several who share it 100 at most, those that end soonest.
    #[schema(max_items = 100)]
    holders: Vec<HolderBody>,
    /// How many hold it in all.
    holder_count: u64,
    /// Who waits for it, in the order in which they are served: the first 100 of them.
    #[schema(max_items = 100)]
    waiters: Vec<WaiterBody>,
    /// How many wait for it in all. In a Redis up to a quarter of them may have left a queue of more than 512.
    waiter_count: u64,
}

/// Whether somebody holds a lock.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(in crate::http) enum LockState {
    /// Somebody holds it.
    Held,
    /// Nobody holds it. With waiters: it is just passing to the first of them.
    Free,
}

/// Somebody who waits for a lock.
#[derive(Serialize, ToSchema)]
#[schema(as = Waiter)]
pub(in crate::http) struct WaiterBody {
    /// The place in the queue: 1 is the next to be served.
    #[schema(minimum = 1, maximum = 100)]
    position: u64,
    /// Who asked, for people to read.
    #[schema(required = true)]
    owner: Option<String>,
    /// `exclusive` or `shared`, as it was asked for.
    mode: &'static str,
    /// The limit that was asked for; null without one.
    #[schema(required = true)]
    limit: Option<u16>,
    /// How long it has waited so far.
    waited_ms: u64,
}

/// Who holds a lock. Of a foreign client only its expiry and its mark are known.
#[derive(Serialize, ToSchema)]
#[schema(as = Holder)]
pub(in crate::http) struct HolderBody {
    /// Who asked for the lease, for people to read.
    #[schema(required = true)]
    owner: Option<String>,
    /// What the holder attached to the lease.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    metadata: MetadataBody,
    /// The fencing token of the lease.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64, required = true)]
    fencing_token: Option<u64>,
    /// For how long the lease was last granted.
    #[schema(required = true)]
    ttl_ms: Option<u64>,
    /// What is left of the lease, at least, if nobody renews it; null if it has no expiry, which only a foreign one can
    /// lack.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// When it ends, by the clock of the gateway.
    #[schema(format = DateTime, required = true)]
    expires_at: Option<String>,
    /// When it was granted, by the clock of the gateway.
    #[schema(format = DateTime, required = true)]
    acquired_at: Option<String>,
    /// What is left until the hold limit of the lease; null if it has none.
    #[schema(required = true)]
    hold_expires_in_ms: Option<u64>,
    /// Whether a client that does not use the gateway took the lock in the store itself.
    foreign: bool,
    /// What distinguishes one foreign holder from another, for a break: a hash of what it has written. Null for
    /// a lease, and for what no client writes into a lock.
    #[schema(
        required = true,
        min_length = 40,
        max_length = 40,
        pattern = "^[0-9a-f]{40}$"
    )]
    foreign_mark: Option<String>,
    /// `exclusive` or `shared`; null for a foreign client.
    #[schema(required = true)]
    mode: Option<&'static str>,
    /// The slot of a lease that was granted with a `limit`; else null.
    #[schema(required = true)]
    slot: Option<u16>,
    /// The request for several locks that the lease is a part of; else null.
    #[schema(required = true)]
    group: Option<GroupBody>,
    /// Only if the holder was asked to release the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = ReleaseRequestBody, required = false)]
    release_requested: Option<ReleaseRequestBody>,
}

/// Several locks that were acquired as one.
#[derive(Serialize, ToSchema)]
#[schema(as = Group)]
pub(in crate::http) struct GroupBody {
    /// The first of their names; null if the API key may not view that lock.
    #[schema(required = true)]
    first: Option<String>,
    /// How many they were.
    #[schema(minimum = 2, maximum = 16)]
    count: u8,
}

// === impl LockBody ===

impl LockBody {
    /// `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn new(
        name: &LockName,
        inspection: Inspection,
        now: SystemTime,
        viewer: &Access,
    ) -> Self {
        let holder_count = inspection.holder.as_ref().map_or(0, Holder::count);
        let holder = inspection.holder;
        let holders =
            holder.map_or_else(Vec::new, |holder| HolderBody::all_of(holder, now, viewer));
        let state = if holders.is_empty() {
            LockState::Free
        } else {
            LockState::Held
        };
        Self {
            name: name.as_str().to_owned(),
            state,
            holders,
            holder_count,
            waiters: (1..)
                .zip(inspection.queue)
                .map(|(position, waiter)| WaiterBody::new(position, waiter))
                .collect(),
            waiter_count: inspection.waiters,
        }
    }
}

// === impl WaiterBody ===

impl WaiterBody {
    fn new(position: u64, waiter: Waiter) -> Self {
        let limit = waiter.sharing.as_ref().and_then(Sharing::explicit_limit);
        Self {
            position,
            owner: waiter.owner.map(|owner| owner.as_str().to_owned()),
            mode: Sharing::mode(waiter.sharing).as_str(),
            limit: limit.map(Limit::get),
            waited_ms: millis(waiter.waited),
        }
    }
}

// === impl HolderBody ===

impl HolderBody {
    /// As many as are shown of them. `now` is the wall time of the gateway, for the timestamps.
    pub(super) fn all_of(holder: Holder, now: SystemTime, viewer: &Access) -> Vec<Self> {
        let as_of = Instant::now();
        let of_lease = |lease: HeldLease| Self::of_lease(lease.at(as_of), now, viewer);
        match holder {
            Holder::Lease(lease) => vec![of_lease(lease)],
            Holder::Shared(holders) => {
                let shown = holders.leases.into_iter().take(SHOWN_HOLDERS);
                shown.map(of_lease).collect()
            }
            Holder::Foreign { expires_in, mark } => vec![Self {
                owner: None,
                metadata: MetadataBody::default(),
                fencing_token: None,
                ttl_ms: None,
                expires_in_ms: expires_in.map(millis),
                expires_at: expires_in.map(|left| timestamp(now.checked_add(left))),
                acquired_at: None,
                hold_expires_in_ms: None,
                foreign: true,
                foreign_mark: mark.map(|mark| mark.to_string()),
                mode: None,
                slot: None,
                group: None,
                release_requested: None,
            }],
        }
    }

    fn of_lease(lease: HeldLease, now: SystemTime, viewer: &Access) -> Self {
        Self {
            release_requested: ReleaseRequestBody::of_lease(&lease),
            group: lease.metadata.group().map(|group| GroupBody {
                first: Some(&group.first)
                    .filter(|first| viewer.views(first))
                    .map(|first| first.as_str().to_owned()),
                count: group.count,
            }),
            owner: lease.owner.map(|owner| owner.as_str().to_owned()),
            metadata: MetadataBody(lease.metadata),
            fencing_token: Some(lease.fence.get()),
            ttl_ms: Some(lease.ttl.as_millis()),
            expires_in_ms: Some(millis(lease.expires_in)),
            expires_at: Some(timestamp(now.checked_add(lease.expires_in))),
            acquired_at: Some(timestamp(now.checked_sub(lease.held_for))),
            hold_expires_in_ms: lease.hold_expires_in.map(millis),
            foreign: false,
            foreign_mark: None,
            mode: Some(lease.mode.as_str()),
            slot: lease.mode.slot(),
        }
    }
}
