//! `DELETE /session`: be known no more.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{AppendHeaders, IntoResponse, Response},
};
use http::{StatusCode, header::SET_COOKIE};

use crate::http::{
    extract::{NoQuery, Provenance, SignOutCaller},
    problem::Problem,
    state::AppState,
};

use super::cookies::CookieJar;

/// Sign out
///
/// Has the browser forget its session. Nothing else is there to be forgotten: a copy of the cookie, if
/// somebody has one, counts until it ends. To end those too, take the secret out of its key.
///
/// It is not charged to the key, so that a session can be ended although others have used the key up.
#[utoipa::path(
    delete,
    path = "/session",
    operation_id = "signOut",
    tag = "session",
    responses(
        (status = 204, description = "The session is forgotten, or there was none.",
         headers(("Set-Cookie", description = "Takes the cookie away."))),
    )
)]
pub(in crate::http) async fn sign_out(
    State(gateway): State<Arc<AppState>>,
    jar: CookieJar,
    caller: SignOutCaller,
    provenance: Provenance,
    _: NoQuery,
) -> Result<Response, Problem> {
    if let Some(access) = caller.session() {
        gateway.audit.signed_out(&provenance.requester(access));
    }
    let cookies: Vec<_> = jar.forget().map(|cookie| (SET_COOKIE, cookie)).collect();
    Ok((StatusCode::NO_CONTENT, AppendHeaders(cookies)).into_response())
}
