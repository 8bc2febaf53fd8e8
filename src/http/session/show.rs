//! `GET /session`: who somebody is here.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use crate::http::{
    extract::{AcceptsJson, NoQuery, OptionalCaller},
    json_response::JsonResponse,
    problem::{Problem, ProblemCode as Code, problem_responses},
    state::AppState,
};

use super::session_body::SessionBody;

/// The problems of show.
struct ShowProblems;

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
        ShowProblems,
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

// === impl ShowProblems ===

impl IntoResponses for ShowProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(&[Code::Unauthorized, Code::RateLimited])
    }
}
