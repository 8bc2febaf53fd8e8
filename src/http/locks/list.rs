//! `GET /locks`: look at the locks that are held, a page at a time.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use crate::{
    auth::scope,
    http::{
        extract::{AcceptsJson, ApiQuery, Caller},
        json_response::JsonResponse,
        problem::{Problem, ProblemCode as Code, problem_responses},
        state::AppState,
    },
    lock::LockName,
};

use super::{
    list_query::{ListParameters, ListQuery},
    page_body::PageBody,
};

/// The problems of list.
struct ListProblems;

/// List the locks that are held
///
/// Shows a part of the locks that are held, in no order. Ask again with `next_cursor` until it is
/// null. The work for one page is bounded, so a page may be short, or empty, although there are more.
/// A lock that is held throughout such a walk is on one page at least, and may be on two; what has
/// ended is on none. A client that took a lock in the store itself shows as `foreign`, with what is
/// known of it.
///
/// With an API key only locks that it may view are shown: it must name a `prefix` all of which it may
/// view, so that neither a page nor a cursor tells of others. Else the answer is 403.
#[utoipa::path(
    get,
    path = "/locks",
    operation_id = "list",
    tag = "locks",
    params(ListParameters),
    responses(
        (status = 200, body = PageBody, description = "A page of locks."),
        ListProblems,
    )
)]
pub(in crate::http) async fn list(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::View>,
    _: AcceptsJson,
    ApiQuery(ListQuery(query)): ApiQuery<ListQuery>,
) -> Result<JsonResponse<PageBody>, Problem> {
    if !caller.views_all(&query.prefix) {
        return Err(Problem::forbidden_list(&query.prefix));
    }
    // A caller that hangs up from here on ends the walk; nothing is left behind.
    let views = |name: &LockName| caller.views(name);
    let page = gateway.engine.list(&query, views).await?;
    let now = gateway.clock.wall();
    Ok(JsonResponse(PageBody::new(page, &query, now)))
}

// === impl ListProblems ===

impl IntoResponses for ListProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(&[
            Code::InvalidRequest,
            Code::Unauthorized,
            Code::Forbidden,
            Code::OriginRefused,
            Code::RateLimited,
            Code::Internal,
            Code::StoreUnavailable,
            Code::Overloaded,
            Code::Draining,
            Code::OutcomeUnknown,
        ])
    }
}
