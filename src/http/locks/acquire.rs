//! `POST /locks/{name}`: acquire a lock.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use crate::{
    auth::scope,
    engine::AcquireError,
    http::{
        edge::RequestContext,
        extract::{AcceptsJson, ApiJson, ApiPath, Caller, IdempotencyKeyHeader, NoQuery},
        problem::{Problem, ProblemCode as Code, problem_responses},
        serve::LongRequests,
        state::AppState,
    },
    lock::LockName,
};

use super::{
    acquire_body::AcquireBody, delivered::Acquired, header_params::KeyHeader,
    lease_body::LeaseBody, lock_path::LockPath, waiter_count::WaiterCount,
};

/// The problems of acquire.
struct AcquireProblems;

/// Acquire a lock
///
/// Grants a lease of the lock if it is free, and answers 423 with the holder if it is not. An empty
/// body takes all defaults, with any content type: `curl -X POST localhost:7420/locks/deploy` works
/// as it stands.
///
/// With `wait_ms` a request for a held lock stands in the queue of that lock, and is answered when
/// it is served or when its wait is over. All gateways on a store share the queue; it is served in
/// order, and nobody passes it. The wait costs nothing while it lasts, but the connection must
/// last: keep the time-out of the HTTP client longer than `wait_ms`.
///
/// If the connection breaks before the answer has been sent, the request leaves the queue, and a
/// lease that it was granted is given back. With an `Idempotency-Key` the place and the lease are
/// kept for a few seconds: the same request, sent again in time, goes on where the broken one was.
/// So does a request that comes after a 423: a chain of short waits with one key keeps its place
/// in the queue. To give the place up, ask once more with the key and without `wait_ms`: the answer
/// is 423, or the lease if it was granted meanwhile, which is then yours to release. A request that
/// still waits there is answered 409 `superseded`.
///
/// Of two requests with one key the one that reaches the store last has the place; the other is
/// answered 409 `superseded`. That is by arrival, not by when they were sent: a request that was
/// given up, and held up on its way, can come after the one that was sent in its stead. If you are
/// told `superseded` and sent no newer request, ask again.
///
/// A lease that is answered again under its `Idempotency-Key` (200) is not given back when that
/// answer is lost: the first one may have arrived. It ends when it is released, or with its TTL. A
/// stream that held it (`/locks/{name}/hold`) ends without releasing it.
#[utoipa::path(
    post,
    path = "/locks/{name}",
    operation_id = "acquire",
    tag = "locks",
    params(LockPath, KeyHeader),
    request_body(
        content = AcquireBody,
        description = "What is asked for. It may be left out."
    ),
    responses(
        (status = 200, body = LeaseBody,
         description = "The lease that lives under this `Idempotency-Key` already.",
         headers(("Location", description = "Where the lock can be inspected."))),
        (status = 201, body = LeaseBody, description = "A new lease.",
         headers(("Location", description = "Where the lock can be inspected."))),
        AcquireProblems,
    )
)]
pub(in crate::http) async fn acquire(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Acquire>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    (_, context, long_requests): (NoQuery, RequestContext, LongRequests),
    IdempotencyKeyHeader(key): IdempotencyKeyHeader,
    ApiJson(body): ApiJson<AcquireBody>,
) -> Result<Acquired, Problem> {
    // A caller that hangs up from here on: the engine leaves the queue and gives the lease back.
    let sees_holder = caller.views(&name);
    let (_permit, mut waiter, slot, granted) = {
        let request = body.into_request(name, key, &caller)?;
        let waits = !request.wait.is_zero();
        let permit = waits.then(|| long_requests.acquire()).transpose()?;
        let waiter = WaiterCount::of(&gateway.engine, &caller, &request)?;
        let slot = caller.lease(&request.name, request.idempotency_key.as_ref())?;
        let granted = gateway
            .engine
            .acquire_with_queued_hook(request, || context.wait());
        (permit, waiter, slot, granted)
    };
    let granted = granted.await;
    if !matches!(granted, Err(AcquireError::Held { .. })) {
        waiter.finish();
    }
    let granted = granted.map_err(|error| Problem::for_acquire(error, sees_holder))?;
    Ok(Acquired::new(granted, slot, &gateway))
}

// === impl AcquireProblems ===

impl IntoResponses for AcquireProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(&[
            Code::InvalidRequest,
            Code::Unauthorized,
            Code::Forbidden,
            Code::LimitExceeded,
            Code::OriginRefused,
            Code::RequestTimeout,
            Code::IdempotencyMismatch,
            Code::IdempotencyExpired,
            Code::Superseded,
            Code::TooLarge,
            Code::UnsupportedMediaType,
            Code::Locked,
            Code::RateLimited,
            Code::TooManyWaiters,
            Code::TooManyLeases,
            Code::Internal,
            Code::ForeignData,
            Code::StoreUnavailable,
            Code::Overloaded,
            Code::Draining,
            Code::FenceExhausted,
            Code::OutcomeUnknown,
        ])
    }
}
