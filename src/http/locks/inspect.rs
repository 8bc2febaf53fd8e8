//! `GET /locks/{name}`: look at a lock.

use std::{sync::Arc, time::SystemTime};

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::ETAG};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    auth::{Access, scope},
    http::{
        extract::{AcceptsJson, ApiPath, Caller, IfNoneMatch, NoQuery},
        json_response::JsonResponse,
        problem::Problem,
        state::AppState,
    },
    lock::{Limit, LockName, Sharing},
    store::contract::{Holder, Inspection, Waiter},
};

use super::lease_view::{HolderBody, millis};

/// Inspect a lock
///
/// Shows whether somebody holds the lock, and who, and who waits for it, in the order in which they
/// are served. A lock that was never taken is free. A client that took the lock in the store itself
/// shows as `foreign`, with what is known of it.
///
/// The `ETag` names who holds the lock: the lease by its fencing token, all who share it, a foreign client by its mark, or
/// nobody. A lock that more than 100 share has none.
/// With it in `If-None-Match` the answer is 304 for as long as that is the same. It is a weak one, because
/// the rest of the answer changes without it: what is left of the lease, its TTL after a renewal, and who waits.
#[utoipa::path(
    get,
    path = "/locks/{name}",
    operation_id = "inspectLock",
    tag = "locks",
    params(ApiPath<LockName>, IfNoneMatch),
    responses(
        (status = 200, body = LockBody, description = "The lock.",
         headers(("ETag", description = "Who holds it, as a weak tag."))),
        (status = 304, description = "The same as that which `If-None-Match` names holds the lock.",
         headers(("ETag", description = "Who holds it, as a weak tag."))),
    )
)]
pub(in crate::http) async fn inspect(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::View>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
    seen: IfNoneMatch,
) -> Result<Response, Problem> {
    let inspection = gateway.engine.inspect(&name).await?;
    let tag = tag(inspection.holder.as_ref());
    let is_seen = tag.as_ref().is_some_and(|tag| seen.names(tag));
    let tag = tag.map(|tag| [(ETAG, tag)]);
    if is_seen {
        return Ok((tag, StatusCode::NOT_MODIFIED).into_response());
    }
    let lock = LockBody::new(&name, inspection, gateway.clock.wall(), &caller);
    Ok((tag, JsonResponse(lock)).into_response())
}

/// Who holds a lock, and nothing of what changes while they do; `None` if there are more than are seen.
fn tag(holder: Option<&Holder>) -> Option<HeaderValue> {
    let holder = match holder {
        None => return Some(HeaderValue::from_static("W/\"free\"")),
        Some(Holder::Lease(lease)) => format!("W/\"held-{}\"", lease.fence.get()),
        // Whoever joins has a larger fencing token than all before. So between two looks with one largest
        // token nobody has joined, and if there are as many, nobody has left.
        Some(Holder::Shared(holders)) => {
            let latest = holders.leases.iter().map(|lease| lease.fence.get()).max();
            let seen = u64::try_from(holders.leases.len()).ok();
            let latest = latest.filter(|_| seen == Some(holders.count))?;
            format!("W/\"shared-{latest}-{}\"", holders.count)
        }
        Some(Holder::Foreign { mark, .. }) => match mark {
            Some(mark) => format!("W/\"foreign-{mark}\""),
            None => return Some(HeaderValue::from_static("W/\"foreign\"")),
        },
    };
    let tag = HeaderValue::try_from(holder);
    Some(tag.expect("numbers and hexadecimal digits are visible ASCII"))
}

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
