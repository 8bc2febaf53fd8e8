//! `PUT /locks/{name}/renew`: keep a lock.

use std::sync::Arc;

use axum::extract::State;

use crate::{
    auth::{Access, scope},
    engine::RenewError,
    http::{
        extract::{
            AcceptsJson, ApiJson, ApiPath, Caller, Field, Fields, Form, LockToken, NoQuery,
            RequestBody, TOKEN, declare_fields,
        },
        problem::Problem,
        state::AppState,
    },
    lock::{LockName, Token, Ttl},
    store::contract::RenewalTtl,
};

use super::{
    acquire::{self, TTL_MS},
    lease_view::LeaseBody,
};

/// Renew a lease
///
/// Makes a living lease last for its TTL from now, and never shorter: with a `ttl_ms` that ends before the lease does,
/// the lease keeps its end, and has that TTL at its next renewal. An ended lease is not brought back, and no renewal
/// goes past the `max_hold_ms` of the lease. A `ttl_ms` above what the API key may ask for is 403 `limit-exceeded`.
/// Without `ttl_ms`, a lease with a longer TTL than the key may ask for gets the key's longest TTL. Renewing twice does
/// no harm. With `release_requested` in the answer somebody has asked for the lock: finish, and release it in time. Works while the gateway drains. If the answer of the store took
/// longer than the lease lasts, this is 504 `outcome-unknown`.
#[utoipa::path(
    put,
    path = "/locks/{name}/renew",
    operation_id = "renewLock",
    tag = "locks",
    params(ApiPath<LockName>, LockToken),
    request_body(
        content = RenewJson,
        description = "How the lease is renewed. It may be left out."
    ),
    responses(
        (status = 200, body = LeaseBody, description = "The lease, renewed."),
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
) -> Result<LeaseBody, Problem> {
    let ttl = body.renewal_ttl(&caller);
    let (token, ttl) = (token.or(body.token)?, ttl?);
    // A caller that hangs up from here on has a lease that was renewed or not; both end by themselves.
    let charge = caller.charge();
    let renewed = gateway.engine.renew(name, token, ttl).await;
    // Whoever renews only lost leases pays for it.
    if let Err(RenewError::Lost(_)) = &renewed {
        drop(charge);
    } else {
        charge.forgive();
    }
    let lease = renewed?;
    Ok(LeaseBody::new(lease, gateway.clock.wall()))
}

// === Renew body ===
//
// What renew takes.

pub(in crate::http) struct RenewBody {
    pub(super) token: Option<Token>,
    ttl: Option<Ttl>,
}

/// The body in the OpenAPI document.
pub(in crate::http) type RenewJson = ApiJson<RenewBody>;

declare_fields! {
    /// How the lease is renewed. Every field may be left out; null is the same as leaving it out.
    const RENEW: "RenewBody" => Form::TEXT.example(r#"{"ttl_ms": 30000}"#);
    /// The token of the lease, for those who cannot send the header `Lock-Token`.
    const TOKEN_INSTEAD: "token" => TOKEN.write_only();
    /// For how long the lease lasts from now, in milliseconds; it becomes the lease's own TTL. Left
    /// out: the lease's own TTL again, or the longest of the API key if that is shorter.
    const TTL: "ttl_ms" => TTL_MS;
}

// === impl RenewBody ===

impl RenewBody {
    /// The TTL that the caller asks for, if it may, and the longest one that it may have.
    pub(super) fn renewal_ttl(&self, caller: &Access) -> Result<RenewalTtl, Problem> {
        let (asked, max) = (self.ttl, caller.max_ttl());
        asked.map_or(Ok(()), |ttl| Problem::check_ttl(ttl, caller))?;
        Ok(RenewalTtl { asked, max })
    }
}

impl RequestBody for RenewBody {
    const ABOUT: Field = RENEW;

    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            token: fields.parsed(&TOKEN_INSTEAD, Token::parse),
            ttl: acquire::ttl(fields, &TTL),
        }
    }
}
