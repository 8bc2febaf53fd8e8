//! `GET /locks/{name}/history`: who held a lock, from when to when, and how that ended.

use std::sync::Arc;

use axum::extract::State;

use crate::{
    auth::scope,
    http::{
        extract::{AcceptsJson, ApiPath, Caller, NoQuery},
        json_response::JsonResponse,
        problem::Problem,
        state::AppState,
    },
    lock::{History, LockName},
};

/// Show the history of a lock
///
/// Shows the last leases of a lock, newest first: who held it, from when to when, how that ended, by whom and
/// why. At most `history.entries` leases are shown, each for `history.keep_ms` after its end. A lease shorter
/// than `history.after_ms` is only counted in `shorter_leases`, unless it was broken or lost, or its release
/// was requested. Renewals leave no entry.
///
/// Gateways write the history about once a second, behind the requests. If a gateway dies, what happened in
/// its last second is missing: such a lease is shown without `ended`, and with `ended_at_latest`. While the
/// store is away the last 10,000 records of each gateway wait; `dropped` counts those for which there was no
/// room. Timestamps are from the clocks of the gateways; the order is that of the fencing tokens.
#[utoipa::path(
    get,
    path = "/locks/{name}/history",
    operation_id = "lockHistory",
    tag = "locks",
    params(ApiPath<LockName>),
    responses(
        (status = 200, body = History, description = "The history."),
    )
)]
pub(in crate::http) async fn history(
    State(gateway): State<Arc<AppState>>,
    _: Caller<scope::View>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
) -> Result<JsonResponse<History>, Problem> {
    Ok(JsonResponse(gateway.engine.history(&name).await?))
}
