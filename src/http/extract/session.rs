//! A session instead of a key, for those requests for which it counts.

use http::{HeaderName, HeaderValue, Method, request::Parts};

use crate::{
    auth::Access,
    http::{
        edge::RequestSource,
        problem::{Problem, ProblemCode},
        serve::peer,
        session::CookieNames,
        state::AppState,
    },
};

/// What no page of another origin can send without being asked about it first, and is then refused:
/// it is not among the headers that a listed page may send.
const X_REQUESTED_WITH: HeaderName = HeaderName::from_static("x-requested-with");

/// Who a page takes to be signed in, by the name of the key. Another page in the browser may have signed
/// in somebody else since, and a cookie says nothing of that.
const SIGNED_IN_AS: HeaderName = HeaderName::from_static("signed-in-as");

/// How many sessions of a request are looked at. A browser has one, and sends another one first if
/// somebody else on the host has set it.
const MOST: usize = 2;

/// Somebody who has a session; `None` if the request brings none.
///
/// A key is in a request because its sender has put it there. A cookie is in every request that a
/// browser sends, whoever asked for it: so it counts only for pages of ours.
pub(super) fn session(parts: &Parts, gateway: &AppState) -> Result<Option<Access>, Problem> {
    let names = CookieNames::of(parts, gateway);
    let mut sealed = names.sealed(&parts.headers).take(MOST).peekable();
    if sealed.peek().is_none() {
        return Ok(None);
    }
    must_be_ours(parts, names.is_secure())?;
    let from = peer(&parts.extensions);
    let mut refusal = None;
    for sealed in sealed {
        match gateway.gate.resume(sealed, from) {
            Ok(access) if is_meant(parts, &access) => return Ok(Some(access)),
            Ok(_) => refusal = refusal.or_else(|| Some(Problem::session_changed())),
            Err(why) => refusal = refusal.or_else(|| Some(why.into())),
        }
    }
    refusal.map_or(Ok(None), Err)
}

/// Whether a session is that of whom the request was sent for, if it says so.
fn is_meant(parts: &Parts, access: &Access) -> bool {
    let named = parts.headers.get(SIGNED_IN_AS).map(HeaderValue::as_bytes);
    named.is_none_or(|named| access.name().is_some_and(|name| name.as_bytes() == named))
}

fn must_be_ours(parts: &Parts, over_https: bool) -> Result<(), Problem> {
    let only_looks = matches!(parts.method, Method::GET | Method::HEAD);
    let (detail, cause) = match RequestSource::of(parts, over_https) {
        RequestSource::Ours => return Ok(()),
        RequestSource::Unknown if only_looks || parts.headers.contains_key(X_REQUESTED_WITH) => {
            return Ok(());
        }
        RequestSource::Unknown => (
            "The request has the cookie of a session, and does not say for which page it was sent. \
             Nothing happened. Add the header X-Requested-With, or send an API key.",
            "a session, and no word of which page it was sent for",
        ),
        RequestSource::Foreign => (
            "The request has the cookie of a session, which counts for pages of the gateway itself \
             only. Nothing happened. A page elsewhere sends an API key.",
            "a session, used by a page of another origin",
        ),
    };
    let problem = Problem::new(ProblemCode::OriginRefused, detail);
    Err(problem.caused_by(cause.to_owned()))
}
