//! `GET /session`: who somebody is here.

use std::sync::Arc;

use axum::extract::State;

use crate::http::{
    extract::{AcceptsJson, NoQuery, OptionalCaller},
    json_response::JsonResponse,
    problem::Problem,
    state::AppState,
};

use super::session_body::SessionBody;

/// Who am I, and what may I do?
///
/// For pages, which show what one may do and hide what one may not. Also who is not known is answered
/// with 200: `signed_in` is false, and no permission is listed. A session that has ended is none.
#[utoipa::path(
    get,
    path = "/session",
    operation_id = "getSession",
    tag = "session",
    responses(
        (status = 200, body = SessionBody, description = "Who asks."),
    )
)]
pub(in crate::http) async fn show(
    State(gateway): State<Arc<AppState>>,
    caller: OptionalCaller,
    _: AcceptsJson,
    _: NoQuery,
) -> Result<JsonResponse<SessionBody>, Problem> {
    Ok(JsonResponse(match caller.access() {
        Some(access) => SessionBody::of(access, gateway.clock.wall()),
        None => SessionBody::of_nobody(),
    }))
}
