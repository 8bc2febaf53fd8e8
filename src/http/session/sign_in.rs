//! `POST /session`: show a key once, and be known by a cookie from then on.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{AppendHeaders, IntoResponse, Response},
};
use http::header::SET_COOKIE;

use crate::http::{
    edge::RequestContext,
    extract::{AcceptsJson, ApiJson, NoQuery, Provenance},
    json_response::JsonResponse,
    problem::Problem,
    state::AppState,
};

use super::{
    cookies::CookieJar,
    session_body::SessionBody,
    sign_in_body::{SignInBody, SignInJson},
};

/// Sign in
///
/// For pages of the gateway itself, such as the dashboard: shows an API key once, and gets a cookie for
/// it that no script can read. From then on the cookie does what the header `Authorization` does, for
/// `auth.session_ttl_ms`, and not longer than the key and the secret that was shown are there. If a
/// request has both, the header counts.
///
/// The cookie is `latchgate-session`, over HTTPS `__Host-latchgate-session` (`__Secure-latchgate-session`
/// below a base path); it is `HttpOnly` and `SameSite=Strict`. It counts for requests of pages of the gateway, as
/// `Sec-Fetch-Site` or `Origin` say. Where a browser sends neither, what could change something needs
/// the header `X-Requested-With`, with any value.
///
/// A gateway without API keys knows everybody, and sets no cookie.
#[utoipa::path(
    post,
    path = "/session",
    operation_id = "signIn",
    tag = "session",
    request_body(content = SignInJson, description = "The key."),
    responses(
        (status = 200, body = SessionBody, description = "Who was signed in.",
         headers(("Set-Cookie", description = "The session, unless the gateway has no API keys."))),
    )
)]
pub(in crate::http) async fn sign_in(
    State(gateway): State<Arc<AppState>>,
    jar: CookieJar,
    provenance: Provenance,
    context: RequestContext,
    _: AcceptsJson,
    _: NoQuery,
    ApiJson(SignInBody { key }): ApiJson<SignInBody>,
) -> Result<Response, Problem> {
    let access = gateway.gate.admit(Some(&key), provenance.remote);
    let access = access.map_err(Problem::of_sign_in)?;
    context.set_caller(&access);
    access.count_request()?;
    let Some((access, session)) = gateway.gate.begin_session(access) else {
        return Ok(JsonResponse(SessionBody::of_anybody()).into_response());
    };
    gateway.audit.signed_in(&provenance.requester(&access));
    // Nothing of it is kept here. A caller that has hung up has no session.
    let ttl = gateway.config.auth.session_ttl_ms.duration();
    let cookies = jar.keep(&session, ttl).into_iter();
    let cookies: Vec<_> = cookies.map(|cookie| (SET_COOKIE, cookie)).collect();
    let body = SessionBody::of(&access, gateway.clock.wall());
    Ok((AppendHeaders(cookies), JsonResponse(body)).into_response())
}
