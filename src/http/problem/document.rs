//! The JSON document of a problem, the route that explains each problem code, and the text of `docs/problems.md`.

use std::fmt::Write;

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{
    HeaderValue,
    header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    http::{
        extract::{AcceptsJson, ApiPath, PathParameter},
        json_response::{JsonResponse, json},
        locks::CurrentHolder,
        state::BasePath,
    },
    lock::{
        LockName, OrderNumber,
        answers::{OrderGrant, Rest},
    },
};

use super::{Extra, FieldError, PartResult, Problem, ProblemCode};

/// Why the request was not carried out (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(in crate::http) struct ProblemDocument<'a> {
    /// The page that says what the problem means and what to do, relative to this gateway.
    #[serde(rename = "type")]
    #[schema(format = "uri-reference", example = "/problems/locked")]
    kind: String,
    /// The problem in one line, the same for every problem with this code.
    #[schema(value_type = String)]
    title: &'static str,
    /// The HTTP status.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What happened to this request.
    #[schema(value_type = String)]
    detail: &'a str,
    /// The kind of problem, by which clients decide what to do. The list is closed: a new code is a new version of this
    /// API.
    code: ProblemCode,
    /// The `X-Request-Id` of this answer, under which the gateway has logged the request.
    #[schema(value_type = String)]
    request_id: &'a str,
    /// With `invalid-request` and `declared-differently`: every field that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<FieldError>, required = false)]
    errors: Option<&'a [FieldError]>,
    /// With `locked` and `outdated-order`, if the request names several locks: the lock that is held, or that was granted
    /// for a higher order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    name: Option<&'a str>,
    /// With `locked`: the holders of the lock; empty in the moment in which the lock passes to a waiter, and while it
    /// rests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<CurrentHolder>, required = false, max_items = 100)]
    holders: Option<&'a [CurrentHolder]>,
    /// With `locked`: how many holders the lock has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    holder_count: Option<u64>,
    /// With `locked`, if the operator has declared the lock: the description of the declaration.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    description: Option<&'a str>,
    /// With `locked`: what rests of the lock after a release (`min_hold_ms`). Only if there are any rests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<Rest>, required = false, max_items = 100)]
    resting: Option<&'a [Rest]>,
    /// With `locked`, if the lock has no holder and only rests: after how long this request could be granted it, if
    /// no other request is before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    available_in_ms: Option<u64>,
    /// With `locked`: how long the request waited, with the earlier requests under its `Idempotency-Key` whose position
    /// in the queue it continued.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    waited_ms: Option<u64>,
    /// With `locked`: the number of requests that wait for the lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    waiters: Option<u64>,
    /// With `locked`, `overloaded` and every 429: after how long to ask again. The time varies a little, so
    /// that callers do not all ask again at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false, minimum = 1, maximum = 60_000)]
    retry_after_ms: Option<u64>,
    /// With `outdated-order`: the order of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false, maximum = 9_007_199_254_740_991_u64)]
    order: Option<u64>,
    /// With `outdated-order`: the highest order for which the lock was granted. With `order-changed`: the order that
    /// the lock remembers, if it remembers one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false, maximum = 9_007_199_254_740_991_u64)]
    granted_order: Option<u64>,
    /// With `outdated-order` and `order-changed`: the grant for that order, if it is known and the API key may view the
    /// lock.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = OrderGrant, required = false)]
    order_granted: Option<&'a OrderGrant>,
    /// With `lease-lost`: whether another caller holds the lock now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = bool, required = false)]
    held: Option<bool>,
    /// With `stale-fencing-token`, if this gateway remembers the lease: how long ago it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    ended_ms_ago: Option<u64>,
    /// With `ends-too-soon`: how much of the lease is left.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    expires_in_ms: Option<u64>,
    /// With `lease-lost`, if the request names several leases: the outcome of each.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<PartResult>, required = false, max_items = 16)]
    results: Option<&'a [PartResult]>,
}

// === impl ProblemDocument ===

impl<'a> ProblemDocument<'a> {
    fn new(problem: &'a Problem, base_path: &BasePath, request_id: &'a str) -> Self {
        let code = problem.code;
        let (mut errors, mut locked, mut held, mut results) = (None, None, None, None);
        let (mut ended_ms_ago, mut expires_in_ms, mut order) = (None, None, None);
        match &problem.extra {
            Extra::None | Extra::Allow(_) | Extra::Challenge(_) | Extra::RetryAfter(_) => {}
            Extra::Fields(fields) => errors = Some(fields.as_slice()),
            Extra::Locked(lock) => locked = Some(lock),
            Extra::Order(report) => order = Some(report),
            Extra::Lost { held: is_held } => held = Some(*is_held),
            Extra::EndedAgo(ms) => ended_ms_ago = Some(*ms),
            Extra::ExpiresIn(ms) => expires_in_ms = Some(*ms),
            Extra::Parts(parts) => {
                held = PartResult::any_held(parts);
                results = Some(parts.as_slice());
            }
        }
        Self {
            kind: format!("{base_path}/problems/{}", code.as_str()),
            title: code.title(),
            status: code.status().as_u16(),
            detail: &problem.detail,
            code,
            request_id,
            errors,
            name: locked
                .and_then(|it| it.name.as_ref())
                .or_else(|| order?.name.as_ref())
                .map(LockName::as_str),
            holders: locked.map(|it| it.holders.as_slice()),
            holder_count: locked.map(|it| it.holder_count),
            description: locked.and_then(|it| it.description.as_deref()),
            resting: locked
                .map(|it| it.resting.as_slice())
                .filter(|it| !it.is_empty()),
            available_in_ms: locked.and_then(|it| it.available_in_ms),
            waited_ms: locked.map(|it| it.waited_ms),
            waiters: locked.map(|it| it.waiters),
            retry_after_ms: problem.retry_after_ms(),
            order: order.and_then(|it| it.asked).map(OrderNumber::get),
            granted_order: order.and_then(|it| it.granted).map(OrderNumber::get),
            order_granted: order.and_then(|it| it.grant.as_ref()),
            held,
            ended_ms_ago,
            expires_in_ms,
            results,
        }
    }
}

/// Writes a problem as a JSON document.
pub(in crate::http) fn document(
    problem: &Problem,
    base_path: &BasePath,
    request_id: &str,
) -> Bytes {
    json(&ProblemDocument::new(problem, base_path, request_id))
}

/// Turns a response into the answer of a problem: sets its headers and its body.
pub(in crate::http) fn render(
    problem: &Problem,
    base_path: &BasePath,
    request_id: &str,
    response: &mut Response,
) {
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/problem+json"),
    );
    if let Some(ms) = problem.retry_after_ms() {
        // Rounded up to whole seconds, because a caller must not ask again too early.
        headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
    }
    if let Extra::Allow(methods) = &problem.extra {
        headers.insert(ALLOW, methods.clone());
    }
    if let Extra::Challenge(challenge) = &problem.extra {
        headers.insert(WWW_AUTHENTICATE, challenge.clone());
    }
    *response.body_mut() = Body::from(document(problem, base_path, request_id));
}

/// What a problem means and what the caller should do.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct ProblemExplained {
    code: ProblemCode,
    /// The HTTP status of every answer with this code.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// The problem in one line.
    #[schema(value_type = String)]
    title: &'static str,
    /// What the problem means, in Markdown.
    #[schema(value_type = String)]
    meaning: &'static str,
    /// What the caller should do, in Markdown.
    #[schema(value_type = String)]
    action: &'static str,
}

/// What a problem means
///
/// The page that the `type` of a problem points to: what the problem means and what the caller should do.
#[utoipa::path(
    get,
    path = "/problems/{code}",
    operation_id = "explainProblem",
    tag = "documentation",
    params(("code" = ProblemCode, Path, description = "The code of the problem.")),
    responses((status = 200, body = ProblemExplained, description = "What the problem means."))
)]
pub(in crate::http) async fn problem_page(
    _: AcceptsJson,
    ApiPath(code): ApiPath<ProblemCode>,
) -> JsonResponse<ProblemExplained> {
    JsonResponse(ProblemExplained {
        code,
        status: code.status().as_u16(),
        title: code.title(),
        meaning: code.meaning(),
        action: code.action(),
    })
}

/// The chapter of the documentation that lists every problem: `docs/problems.md`.
pub fn problems_markdown() -> String {
    let mut text = String::from(
        "# Problems\n\n\
         Every answer without success is a problem document (RFC 9457) with the media type\n\
         `application/problem+json`. Decide by `code`: the list is closed. `status` and `title` follow from\n\
         `code`, `detail` says what happened to this request, and the log of the gateway has the `request_id`.\n\
         `type` points to the same text as below, served by the gateway.\n\n\
         | status | code | |\n|---|---|---|\n",
    );
    let mut codes = ProblemCode::ALL.to_vec();
    codes.sort_by_key(|code| code.status());
    for code in &codes {
        let (slug, status) = (code.as_str(), code.status().as_u16());
        let _ = writeln!(
            text,
            "| {status} | [`{slug}`](#{slug}) | {} |",
            code.title()
        );
    }
    for code in &codes {
        let _ = write!(
            text,
            "\n## {}\n\n**{} {}.** {}\n\nWhat to do: {}\n",
            code.as_str(),
            code.status().as_u16(),
            code.title(),
            code.meaning(),
            code.action(),
        );
    }
    text
}

// === impl ProblemCode ===

impl PathParameter for ProblemCode {
    const NAME: &str = "code";

    fn read(text: &str) -> Result<Self, Problem> {
        Self::from_slug(text)
            .ok_or_else(|| Problem::new(Self::NotFound, "There is no problem with this code."))
    }
}
