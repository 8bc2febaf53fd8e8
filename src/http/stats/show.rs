//! `GET /stats`: how this gateway is doing.

use std::sync::Arc;

use axum::extract::State;

use crate::{
    auth::{Permission, scope},
    http::{
        extract::{AcceptsJson, Caller, NoQuery},
        health,
        json_response::JsonResponse,
        problem::Problem,
        state::AppState,
    },
    lock::NamePrefix,
};

use super::stats_body::StatsBody;

/// How is this gateway doing?
///
/// The numbers that a person looks at, of **this gateway**: what it did since its start, who waits
/// through it now, how its store is. For all gateways together, and over time, collect `/metrics`. Rates
/// are differences of two answers with the same `instance`.
///
/// With API keys it takes one with the permission `metrics`, or with `view` on every lock. Names are those
/// that the key may view.
#[utoipa::path(
    get,
    path = "/stats",
    operation_id = "getStats",
    tag = "health",
    responses(
        (status = 200, body = StatsBody, description = "The numbers."),
    )
)]
pub(in crate::http) async fn stats(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::AnyKey>,
    _: AcceptsJson,
    _: NoQuery,
) -> Result<JsonResponse<StatsBody>, Problem> {
    let may_read = caller.permits(Permission::Metrics, None);
    if !may_read && !caller.permits_all(Permission::View, &NamePrefix::default()) {
        return Err(Problem::forbidden_stats());
    }
    let readiness = health::readiness(&gateway).await;
    Ok(JsonResponse(StatsBody::new(&gateway, readiness, |name| {
        caller.views(name)
    })))
}
