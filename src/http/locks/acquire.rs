//! `POST /locks/{name}`: acquire a lock.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use crate::{
    http::{
        extract::{AcceptsJson, ApiJson, ApiPath, IdempotencyKeyHeader, NoQuery},
        problem::{Problem, ProblemCode as Code, problem_responses},
        state::Gateway,
    },
    lock::LockName,
};

use super::{
    acquire_body::AcquireBody, delivered::Acquired, header_params::KeyHeader,
    lease_body::LeaseBody, lock_path::LockPath,
};

/// The problems of acquire.
struct AcquireProblems;

/// Acquire a lock
///
/// Grants a lease of the lock if it is free, and answers 423 with the holder if it is not. An empty
/// body takes all defaults, with any content type: `curl -X POST localhost:7420/locks/deploy` works
/// as it stands.
///
/// If the connection breaks before the answer has been sent, the lease is given back. With an
/// `Idempotency-Key` it waits a few seconds for its caller to ask again, and the same request then
/// gets the same lease.
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
    State(gateway): State<Arc<Gateway>>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
    IdempotencyKeyHeader(key): IdempotencyKeyHeader,
    ApiJson(body): ApiJson<AcquireBody>,
) -> Result<Acquired, Problem> {
    // A caller that hangs up from here on: the engine finishes the attempt and gives the lease back.
    let granted = gateway.engine.acquire(body.into_request(name, key)).await?;
    Ok(Acquired::new(granted, &gateway))
}

// === impl AcquireProblems ===

impl IntoResponses for AcquireProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(&[
            Code::InvalidRequest,
            Code::RequestTimeout,
            Code::IdempotencyMismatch,
            Code::IdempotencyExpired,
            Code::TooLarge,
            Code::UnsupportedMediaType,
            Code::Locked,
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
