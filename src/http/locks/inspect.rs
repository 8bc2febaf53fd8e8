//! `GET /locks/{name}`: look at a lock.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use crate::{
    auth::scope,
    http::{
        extract::{AcceptsJson, ApiPath, Caller, NoQuery},
        json_response::JsonResponse,
        problem::{Problem, ProblemCode as Code, problem_responses},
        state::AppState,
    },
    lock::LockName,
};

use super::{header_params::LockPath, lock_body::LockBody};

/// The problems of inspect.
struct InspectProblems;

/// Inspect a lock
///
/// Shows whether somebody holds the lock, and who, and who waits for it, in the order in which they
/// are served. A lock that was never taken is free. A client that took the lock in the store itself
/// shows as `foreign`, with what is known of it.
#[utoipa::path(
    get,
    path = "/locks/{name}",
    operation_id = "inspect",
    tag = "locks",
    params(LockPath),
    responses(
        (status = 200, body = LockBody, description = "The lock."),
        InspectProblems,
    )
)]
pub(in crate::http) async fn inspect(
    State(gateway): State<Arc<AppState>>,
    _: Caller<scope::View>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
) -> Result<JsonResponse<LockBody>, Problem> {
    let inspection = gateway.engine.inspect(&name).await?;
    Ok(JsonResponse(LockBody::new(
        &name,
        inspection,
        gateway.clock.wall(),
    )))
}

// === impl InspectProblems ===

impl IntoResponses for InspectProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(&[
            Code::InvalidRequest,
            Code::Unauthorized,
            Code::Forbidden,
            Code::OriginRefused,
            Code::RateLimited,
            Code::Internal,
            Code::ForeignData,
            Code::StoreUnavailable,
            Code::Overloaded,
            Code::Draining,
        ])
    }
}
