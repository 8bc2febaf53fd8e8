//! `PUT /locks/{name}/renew`: keep a lock.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use tokio::time::Instant;
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use crate::{
    auth::scope,
    engine::RenewError,
    http::{
        extract::{AcceptsJson, ApiJson, ApiPath, Caller, LockToken, NoQuery},
        json_response::JsonResponse,
        problem::{Problem, ProblemCode as Code, problem_responses},
        state::AppState,
    },
    lock::LockName,
};

use super::{
    header_params::TokenHeader, lease_body::LeaseBody, lock_path::LockPath, renew_body::RenewBody,
};

/// The problems of renew.
struct RenewProblems;

/// Renew a lease
///
/// Makes a living lease last longer, counted from now. It never brings an ended lease back, and it
/// never goes past the `max_hold_ms` of the lease: it is cut short there. A `ttl_ms` above what the API
/// key may ask for is 403 `limit-exceeded`; without one a lease that came from a key which may ask for
/// more is cut to what this key may have, and not refused. Renewing twice does no
/// harm. Works while the gateway drains.
#[utoipa::path(
    put,
    path = "/locks/{name}/renew",
    operation_id = "renew",
    tag = "locks",
    params(LockPath, TokenHeader),
    request_body(
        content = RenewBody,
        description = "How the lease is renewed. It may be left out."
    ),
    responses(
        (status = 200, body = LeaseBody, description = "The lease, renewed."),
        RenewProblems,
    )
)]
pub(in crate::http) async fn renew(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Keep>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
    token: LockToken,
    ApiJson(body): ApiJson<RenewBody>,
) -> Result<JsonResponse<LeaseBody>, Problem> {
    let token = token.or(body.token)?;
    if let Some(ttl) = body.ttl {
        Problem::check_ttl(ttl, &caller)?;
    }
    // A caller that hangs up from here on has a lease that was renewed or not; both end by themselves.
    let id = (name.clone(), token.hash());
    let charge = caller.charge();
    let asked = Instant::now();
    let most = caller.max_ttl();
    let renewed = gateway.engine.renew(name, token, body.ttl, most).await;
    let (name, token) = id;
    match &renewed {
        Ok(lease) => {
            let until = asked + lease.held.expires_in;
            gateway.gate.lease_renewed(&name, token, until);
            charge.forgive();
        }
        Err(RenewError::Lost(_)) => {
            gateway.gate.lease_ended(&name, token);
            drop(charge);
        }
        Err(RenewError::Store(_)) => charge.forgive(),
    }
    let lease = renewed?;
    Ok(JsonResponse(LeaseBody::new(lease, gateway.clock.wall())))
}

// === impl RenewProblems ===

impl IntoResponses for RenewProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(&[
            Code::InvalidRequest,
            Code::Unauthorized,
            Code::Forbidden,
            Code::LimitExceeded,
            Code::OriginRefused,
            Code::RequestTimeout,
            Code::LeaseLost,
            Code::TooLarge,
            Code::UnsupportedMediaType,
            Code::RateLimited,
            Code::Internal,
            Code::ForeignData,
            Code::StoreUnavailable,
            Code::Overloaded,
            Code::Draining,
            Code::OutcomeUnknown,
        ])
    }
}
