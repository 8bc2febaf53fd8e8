//! The caller of a request, and whether the caller has the permission for it.

use std::{convert::Infallible, marker::PhantomData, net::IpAddr, ops::Deref, sync::Arc};

use axum::extract::FromRequestParts;
use http::{HeaderName, HeaderValue, Method, header::AUTHORIZATION, request::Parts};

use crate::{
    auth::{Access, Charge, Refusal, Scope},
    engine::Actor,
    http::{
        edge::{RequestContext, RequestSource},
        problem::{Problem, ProblemCode},
        serve::peer,
        state::AppState,
    },
    lock::{LockName, TokenHash},
};

use super::{cookies::CookieNames, headers::single, target::lock};

/// A caller that has the permission `S` on the lock in the path, or on some lock if the path has none.
///
/// This is the first extractor of a handler: a caller without permission does not learn what else was wrong
/// with the request, and causes no work for the store.
pub(in crate::http) struct Caller<S> {
    access: Access,
    /// The address of a caller without an API key, if the history may record it.
    address: Option<IpAddr>,
    scope: PhantomData<S>,
}

/// Name of the header `Authorization` as problems write it.
const FIELD: &str = "Authorization";

// === impl Caller ===

impl<S> Caller<S> {
    /// Who the caller is, for the history of locks; `None` if that is not recorded.
    pub(in crate::http) fn actor(&self) -> Option<Actor> {
        actor(Some(&self.access), self.address)
    }
}

fn actor(access: Option<&Access>, address: Option<IpAddr>) -> Option<Actor> {
    let key = access.and_then(Access::mark).cloned().map(Actor::Key);
    key.or(address.map(Actor::Address))
}

/// The address of the sender of a request, if the history may record it.
fn recorded_address(parts: &Parts, gateway: &AppState) -> Option<IpAddr> {
    let address = peer(&parts.extensions)?.to_canonical();
    (address.is_loopback() || gateway.config.history.addresses).then_some(address)
}

impl<S> Deref for Caller<S> {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

impl<S: Scope> FromRequestParts<Arc<AppState>> for Caller<S> {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Problem> {
        let scope = PhantomData;
        if gateway.gate.is_open() {
            let (access, address) = (Access::ANYBODY, recorded_address(parts, gateway));
            RequestContext::from_parts(parts).take_permit()?;
            return Ok(Self {
                access,
                address,
                scope,
            });
        }
        let access = admit(parts, gateway)?;
        let context = RequestContext::from_parts(parts);
        context.set_caller(&access);
        if access.has_ended() && !S::RENEWS {
            return Err(Refusal::ExchangeOver.into());
        }
        if S::IS_COUNTED {
            access.count_request()?;
        }
        let lock = lock(parts)?;
        let permits = |permission| access.permits(permission, lock.as_ref());
        if let Some(permission) = S::PERMISSION
            && !permits(permission)
            && !S::OR.is_some_and(permits)
        {
            return Err(Problem::forbidden(permission, lock.as_ref()));
        }
        context.take_permit()?;
        Ok(Self {
            access,
            address: None,
            scope,
        })
    }
}

/// Authenticates a caller by the API key of the request, or by its session if there is no key: a caller sends
/// a key on purpose, whereas a browser sends a cookie with every request.
pub(super) fn admit(parts: &Parts, gateway: &AppState) -> Result<Access, Problem> {
    let header = single(&parts.headers, &AUTHORIZATION)
        .map_err(|reason| Problem::invalid_field(FIELD, reason))?;
    if header.is_none()
        && let Some(access) = session(parts, gateway)?
    {
        return Ok(access);
    }
    let from = peer(&parts.extensions);
    Ok(gateway.gate.admit(header.map(bearer), from)?)
}

/// The API key after `Bearer`. Empty, which is no valid key, if the header has another form.
pub(in crate::http) fn bearer(header: &str) -> &str {
    match header.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim_matches(' '),
        _ => "",
    }
}

// === Unrefused caller ===
//
// The caller of a release, with an API key or without.

/// The caller of a release. The gateway neither refuses nor counts it, whatever API key or session it has.
pub(in crate::http) struct UnrefusedCaller {
    /// Access (the permissions) of the caller, if its API key or session is valid.
    access: Option<Access>,
    from: Option<IpAddr>,
    /// The address, if the history may record it.
    recorded: Option<IpAddr>,
}

/// Access of the session that the request brings, if it brings a valid one. An API key in the same request
/// changes nothing.
pub(in crate::http) struct SessionHolder(pub(in crate::http) Option<Access>);

// === impl UnrefusedCaller ===

impl UnrefusedCaller {
    /// Who the caller is, for the history of locks; `None` if that is not recorded.
    pub(in crate::http) fn actor(&self) -> Option<Actor> {
        actor(self.access.as_ref(), self.recorded)
    }

    /// Counts the release against a rate limit in case its token is wrong: that of the API key, or of the
    /// address if there is no key. Refuses an address that has sent too many wrong tokens, unless this
    /// gateway knows the lease.
    pub(in crate::http) fn charge(
        self,
        gateway: &AppState,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Charge, Problem> {
        if let Some(access) = self.access {
            return Ok(access.charge());
        }
        if gateway.gate.is_open() {
            return Ok(Charge::default());
        }
        // A lease that was granted here can always be released, whatever other requests came from the same
        // address.
        if gateway.engine.has_lease(name, token) {
            return Ok(Charge::default());
        }
        Ok(gateway.gate.charge(self.from)?)
    }
}

impl FromRequestParts<Arc<AppState>> for UnrefusedCaller {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Infallible> {
        let access = match single(&parts.headers, &AUTHORIZATION) {
            Ok(Some(header)) => gateway.gate.recognize(bearer(header)),
            Ok(None) => session(parts, gateway).ok().flatten(),
            Err(_) => None,
        };
        Ok(Self {
            access,
            from: peer(&parts.extensions),
            recorded: recorded_address(parts, gateway),
        })
    }
}

impl FromRequestParts<Arc<AppState>> for SessionHolder {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Infallible> {
        Ok(Self(session(parts, gateway).ok().flatten()))
    }
}

// === Optional caller ===
//
// The caller on routes that do not require authentication.

/// The caller, if it can be authenticated. Only a wrong API key is refused: the caller has sent it on
/// purpose.
pub(in crate::http) struct OptionalCaller(pub(in crate::http) Option<Access>);

impl FromRequestParts<Arc<AppState>> for OptionalCaller {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Problem> {
        if gateway.gate.is_open() {
            return Ok(Self(Some(Access::ANYBODY)));
        }
        let access = if parts.headers.contains_key(AUTHORIZATION) {
            let access = admit(parts, gateway)?;
            if access.has_ended() {
                return Err(Refusal::ExchangeOver.into());
            }
            Some(access)
        } else {
            // A session that has ended, or that belongs to another page, identifies no caller.
            session(parts, gateway).ok().flatten()
        };
        if let Some(access) = &access {
            RequestContext::from_parts(parts).set_caller(access);
            access.count_request()?;
        }
        Ok(Self(access))
    }
}

// === Session ===
//
// Authentication by session instead of API key, for the requests where a session counts.

/// Header that shows that a page of this gateway sent the request. A page of another origin can send the
/// header only if the gateway allows that to its browser, and the gateway allows it to no page: the header is
/// not on the list for listed pages.
const X_REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");

/// Header with the mark of the caller for which a page was rendered. Another page of the browser may have
/// signed in as another caller since, which the cookie alone does not show.
const SIGNED_IN_AS: HeaderName = HeaderName::from_static("signed-in-as");

/// How many session cookies of a request are tried. A browser has one; a second comes first if another
/// program on the host has set it.
const MAX_SESSION_COOKIES: usize = 2;

/// Access of the session in a request; `None` if the request brings no session.
///
/// An API key is in a request because its sender has put it there. A cookie is in every request of a browser,
/// whatever page caused the request: so a session counts only for pages of this gateway.
pub(super) fn session(parts: &Parts, gateway: &AppState) -> Result<Option<Access>, Problem> {
    let names = CookieNames::for_request(parts, gateway);
    let mut sealed = names
        .sealed(&parts.headers)
        .take(MAX_SESSION_COOKIES)
        .peekable();
    if sealed.peek().is_none() {
        return Ok(None);
    }
    must_be_ours(parts, names.is_secure)?;
    let from = peer(&parts.extensions);
    let mut refusal = None;
    for sealed in sealed {
        match gateway.gate.resume(sealed, from) {
            Ok(access) if is_meant(parts, &access) => return Ok(Some(access)),
            Ok(_) => refusal = refusal.or_else(|| Some(session_changed())),
            Err(why) => refusal = refusal.or_else(|| Some(why.into())),
        }
    }
    refusal.map_or(Ok(None), Err)
}

/// 401: the page was rendered for one API key, and the session belongs to another by now.
fn session_changed() -> Problem {
    let cause = "the page names another API key than the session";
    let mut problem = Problem::from(Refusal::NoSession).caused_by(cause.to_owned());
    problem.detail =
        "The session belongs to another API key than `Signed-In-As` names. Nothing happened. `GET \
         /session` names the key."
            .into();
    problem
}

/// Whether a session belongs to the caller that `Signed-In-As` names, if the request has that header.
fn is_meant(parts: &Parts, access: &Access) -> bool {
    let named = parts.headers.get(SIGNED_IN_AS).map(HeaderValue::as_bytes);
    named.is_none_or(|named| access.mark().is_some_and(|mark| mark.as_bytes() == named))
}

fn must_be_ours(parts: &Parts, over_https: bool) -> Result<(), Problem> {
    let only_looks = matches!(parts.method, Method::GET | Method::HEAD);
    let (detail, cause) = match RequestSource::from_parts(parts, over_https) {
        RequestSource::Ours => return Ok(()),
        RequestSource::Unknown if only_looks || parts.headers.contains_key(X_REQUESTED_WITH) => {
            return Ok(());
        }
        RequestSource::Unknown => (
            "The request has the cookie of a session, and does not say which page sent it. Nothing \
             happened. Add the header X-Requested-With, or send an API key.",
            "a session, without the page that sent the request",
        ),
        RequestSource::Foreign => (
            "The request has the cookie of a session, which counts for pages of the gateway itself \
             only. Nothing happened. A page elsewhere sends an API key.",
            "a session, sent by a page of another origin",
        ),
    };
    let problem = Problem::new(ProblemCode::OriginRefused, detail);
    Err(problem.caused_by(cause.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_stands_behind_bearer() {
        for header in ["Bearer k", "bearer k", "BEARER   k "] {
            assert_eq!(bearer(header), "k", "{header}");
        }
        for header in ["", "k", "Bearer", "Basic k", "Bearerk", " Bearer k"] {
            assert_eq!(bearer(header), "", "{header}");
        }
    }
}
