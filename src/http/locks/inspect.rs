//! `GET /locks/{name}`: look at a lock.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header::ETAG};

use crate::{
    auth::scope,
    http::{
        extract::{AcceptsJson, ApiPath, Caller, IfNoneMatch, NoQuery},
        json_response::JsonResponse,
        problem::Problem,
        state::AppState,
    },
    lock::LockName,
    store::contract::Holder,
};

use super::lock_body::LockBody;

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
