//! `PUT /locks/{name}/renew`, `DELETE /locks/{name}` and `POST /locks/{name}/release`: renew a lease, and
//! release it.

use std::sync::Arc;

use axum::{Extension, extract::State};
use http::StatusCode;

use crate::{
    auth::{Access, scope},
    engine::{ReleaseError, RenewError},
    http::{
        extract::{
            AcceptsJson, ApiJson, ApiPath, ApiQuery, Caller, Field, Fields, Form, LockToken,
            NoQuery, Query, RequestBody, TOKEN, TokenOrBody, UnrefusedCaller, declare_fields,
        },
        problem::Problem,
        serve::UnansweredReleases,
        state::AppState,
    },
    lock::{LockName, Token, TokenHash, Ttl},
    store::contract::{Loss, Releaser, RenewalTtl},
};

use super::{
    acquire::{TTL_MS, ttl},
    lease_view::LeaseBody,
};

/// Renew a lease
///
/// Makes a living lease last for its TTL from now, and never shorter: with a `ttl_ms` that ends before the
/// lease does, the lease keeps its end, and has that TTL at its next renewal. An ended lease stays ended, and
/// no renewal goes past the `max_hold_ms` of the lease. A `ttl_ms` above what the API key may ask for is 403
/// `limit-exceeded`. Without `ttl_ms`, a lease with a longer TTL than the key may ask for gets the key's
/// longest TTL. Renewing twice does no harm. With `release_requested` in the answer a caller has asked for
/// the lock: finish, and release it in time. Works while the gateway drains. If the store took longer to
/// answer than the lease lasts, this is 504 `outcome-unknown`.
#[utoipa::path(
    put,
    path = "/locks/{name}/renew",
    operation_id = "renewLock",
    tag = "locks",
    params(ApiPath<LockName>, LockToken),
    request_body(
        content = RenewJson,
        description = "The new TTL. The body may be left out."
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
    // If the caller hangs up from here on, the lease is renewed or not; in both cases it ends with its TTL.
    let charge = caller.charge();
    let ttl = gateway.bounded_renewal(&name, ttl);
    let renewed = gateway.engine.renew(name, token, ttl).await;
    // A renewal of a lost lease is charged to the caller: its token may be a guess.
    charge.settle(matches!(renewed, Err(RenewError::Lost(_))));
    Ok(LeaseBody::new(renewed?, gateway.clock.wall()))
}

// === Renew body ===
//
// Body of a renew request.

pub(in crate::http) struct RenewBody {
    pub(super) token: Option<Token>,
    ttl: Option<Ttl>,
}

/// Body of a renew request in the OpenAPI document.
pub(in crate::http) type RenewJson = ApiJson<RenewBody>;

declare_fields! {
    /// How the lease is renewed. Every field may be left out; null is the same as leaving it out.
    const RENEW: "RenewBody" => Form::TEXT.example(r#"{"ttl_ms": 30000}"#);
    /// The token of the lease, for callers that cannot send the header `Lock-Token`.
    const RENEWED_TOKEN: "token" => TOKEN.write_only();
    /// For how long the lease lasts from now, in milliseconds; this becomes the lease's own TTL. Left out:
    /// the lease's own TTL again, or the longest of the API key if that is shorter.
    const TTL: "ttl_ms" => TTL_MS;
}

// === impl RenewBody ===

impl RenewBody {
    /// The TTL that the body asks for and the longest TTL that the caller may have. Fails if the body asks
    /// for more.
    pub(super) fn renewal_ttl(&self, caller: &Access) -> Result<RenewalTtl, Problem> {
        let (asked, max) = (self.ttl, caller.max_ttl());
        asked.map_or(Ok(()), |ttl| Problem::check_ttl(&TTL, ttl, caller))?;
        Ok(RenewalTtl { asked, max })
    }
}

impl RequestBody for RenewBody {
    const ABOUT: Field = RENEW;

    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            token: fields.parsed(&RENEWED_TOKEN, Token::parse),
            ttl: ttl(fields, &TTL),
        }
    }
}

/// The answer to a release, with the releases that the gateway repeats if the caller has hung up.
pub(super) type ReleaseAnswer<T> = (Option<Extension<UnansweredReleases>>, Result<T, Problem>);

/// Release a lease
///
/// Ends a living lease. The release is carried out even if the caller hangs up, as soon as the whole request
/// has arrived (over HTTP/2 a body needs its `Content-Length` for that), unless so many callers of releases
/// have hung up at once that the gateway keeps its room for connected callers. If the store does not answer
/// and the caller has hung up, the gateway tries again until the store answers. A lease that is answered again
/// under its `Idempotency-Key` after the release came is not ended. After an answer of 503 the gateway does not try again. Works
/// while the gateway drains.
///
/// If the lease was acquired with an `Idempotency-Key`, a repeated release is answered 204 again for a
/// minute. Any other ended lease is not remembered: the answer is 410, whether an earlier copy of this
/// release ended the lease or it was lost before.
#[utoipa::path(
    delete,
    path = "/locks/{name}",
    operation_id = "releaseLock",
    tag = "locks",
    params(ApiPath<LockName>, ApiQuery<ReleaseQuery>, LockToken),
    responses(
        (status = 204, description = "The lease has ended."),
    )
)]
pub(in crate::http) async fn release(
    State(gateway): State<Arc<AppState>>,
    who: UnrefusedCaller,
    ApiPath(name): ApiPath<LockName>,
    ApiQuery(ReleaseQuery(bearer)): ApiQuery<ReleaseQuery>,
    token: LockToken,
    ApiJson(body): ApiJson<ReleaseBody>,
) -> Result<ReleaseAnswer<StatusCode>, Problem> {
    let token = token.or(body.token)?.hash();
    end(&gateway, who, bearer, name, token).await
}

/// Release a lease by POST
///
/// The same as `DELETE /locks/{name}`, for callers that can only send POST: webhook senders and browsers that
/// leave a page.
#[utoipa::path(
    post,
    path = "/locks/{name}/release",
    operation_id = "releaseLockByPost",
    tag = "locks",
    params(ApiPath<LockName>, ApiQuery<ReleaseQuery>, TokenOrBody),
    request_body(
        content = ReleaseJson,
        description = "The token of the lease. The body may be left out if the header `Lock-Token` \
            is sent."
    ),
    responses(
        (status = 204, description = "The lease has ended."),
    )
)]
pub(in crate::http) async fn release_by_post(
    State(gateway): State<Arc<AppState>>,
    who: UnrefusedCaller,
    ApiPath(name): ApiPath<LockName>,
    ApiQuery(ReleaseQuery(bearer)): ApiQuery<ReleaseQuery>,
    token: LockToken,
    ApiJson(body): ApiJson<ReleaseBody>,
) -> Result<ReleaseAnswer<StatusCode>, Problem> {
    let token = token.or(body.token)?.hash();
    end(&gateway, who, bearer, name, token).await
}

async fn end(
    gateway: &Arc<AppState>,
    who: UnrefusedCaller,
    bearer: Releaser,
    name: LockName,
    token: TokenHash,
) -> Result<ReleaseAnswer<StatusCode>, Problem> {
    let by = who.actor();
    let charge = who.charge(gateway, &name, &token)?;
    let release = gateway.engine.begin_release(bearer, name, token);
    // If the caller hangs up from here on, the engine still completes the command.
    let released = gateway.engine.carry_out(release.clone(), by).await;
    charge.settle(released.as_ref().is_err_and(is_guessed));
    let may_pass = released.as_ref().is_err_and(ReleaseError::may_pass);
    let unanswered = UnansweredReleases {
        gateway: Arc::clone(gateway),
        releases: may_pass.then_some(release).into_iter().collect(),
    };
    let answer = released.map(|()| StatusCode::NO_CONTENT);
    let answer = answer.map_err(|error| explain(gateway, error));
    Ok((unanswered.extension(), answer))
}

/// Whether the token of a failed release may have been guessed. A token whose lease was broken was not.
pub(super) fn is_guessed(error: &ReleaseError) -> bool {
    match error {
        ReleaseError::Lost(Loss::HeldByAnother | Loss::Free) => true,
        ReleaseError::Lost(Loss::Broken { .. })
        | ReleaseError::AnsweredAgain
        | ReleaseError::Store(_) => false,
    }
}

/// The problem of a failed release, for a caller that may have no API key.
pub(super) fn explain(gateway: &AppState, error: ReleaseError) -> Problem {
    if gateway.gate.is_open() {
        error.into()
    } else {
        Problem::for_unauthenticated(error)
    }
}

/// What a caller says of the lease that it releases.
pub(in crate::http) struct ReleaseQuery(pub(super) Releaser);

declare_fields! {
    /// True if the caller has not used the lease, because it no longer wanted the lock when the lock was granted.
    /// Then the lock does not rest for the minimum hold of the lease.
    pub(super) const UNUSED: "unused" => Form::FLAG;
}

// === impl ReleaseQuery ===

impl Query for ReleaseQuery {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(match fields.flag(&UNUSED) {
            Some(true) => Releaser::Unused,
            Some(false) | None => Releaser::Bearer,
        })
    }
}

// === Release body ===
//
// Body of a release request.

pub(in crate::http) struct ReleaseBody {
    token: Option<Token>,
}

/// Body of a release request in the OpenAPI document.
pub(in crate::http) type ReleaseJson = ApiJson<ReleaseBody>;

declare_fields! {
    /// The lease to release.
    const RELEASE: "ReleaseBody" =>
        Form::TEXT.example(r#"{"token": "qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU"}"#);
    /// The token of the lease.
    const RELEASED_TOKEN: "token" => TOKEN.required().write_only();
}

// === impl ReleaseBody ===

impl RequestBody for ReleaseBody {
    const ABOUT: Field = RELEASE;

    fn read(fields: &mut Fields<'_>) -> Self {
        let token = fields.parsed(&RELEASED_TOKEN, Token::parse);
        Self { token }
    }
}
