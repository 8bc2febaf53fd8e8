//! The cookie in which a browser keeps a session.

use std::{sync::Arc, time::Duration};

use axum::extract::FromRequestParts;
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{COOKIE, FORWARDED},
    request::Parts,
};

use crate::{
    auth::SealedSession,
    http::{
        edge::RequestSource,
        problem::{Problem, ProblemCode},
        state::{AppState, BasePath},
    },
};

/// Name of the session cookie where the browser came over plain HTTP, for example to a loopback address.
pub(in crate::http) const SESSION_COOKIE: &str = "latchgate-session";
/// Name of the session cookie over HTTPS. A browser takes a cookie with this prefix only from the same host
/// and over HTTPS: no neighbouring host and no attacker on the way can set it.
const OF_HOST: &str = "__Host-latchgate-session";
/// Name of the session cookie over HTTPS where the gateway has a base path, which the prefix `__Host-` rules
/// out. A neighbouring host can set a cookie of this name, but no attacker on the way can.
const OF_PATH: &str = "__Secure-latchgate-session";

const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The names of the cookies in which a request may bring a session.
#[derive(Debug)]
pub(in crate::http) struct CookieNames {
    /// Whether the browser is known to have come over HTTPS.
    pub(in crate::http) is_secure: bool,
    /// Name of the session cookie if the browser came over HTTPS.
    secure: &'static str,
}

/// Sets and deletes the session cookie of a browser. Only a page of this gateway gets a jar: a page of
/// another origin must not sign a user in or out here.
pub(in crate::http) struct CookieJar {
    names: CookieNames,
    /// Whether the browser came over HTTPS, by the gateway's own knowledge, a proxy's header or the page's
    /// origin.
    is_secure: bool,
    path: BasePath,
    /// The names of the session cookies that the request has brought.
    brought: Vec<&'static str>,
}

// === impl CookieNames ===

impl CookieNames {
    /// The cookie names for a request, from what the gateway and its proxies say about HTTPS.
    pub(in crate::http) fn for_request(parts: &Parts, gateway: &AppState) -> Self {
        let is_secure = gateway.config.http.tls.is_on() || a_proxy_says_https(&parts.headers);
        Self {
            is_secure,
            secure: Self::secure(&gateway.base_path),
        }
    }

    fn secure(base_path: &BasePath) -> &'static str {
        if base_path.as_str().is_empty() {
            OF_HOST
        } else {
            OF_PATH
        }
    }

    /// The sealed sessions that a request brings. There are two if another program on the host, or a page at
    /// another path, has set a second cookie of the same name.
    ///
    /// An attacker on the way or on a neighbouring host can set the name without a prefix, and a browser may
    /// still send an old cookie of that name. So that name counts only if the request is not known to have
    /// come over HTTPS, and never beside a cookie with a prefix, even if the latter has expired.
    pub(in crate::http) fn sealed<'a>(
        &self,
        headers: &'a HeaderMap,
    ) -> impl Iterator<Item = &'a str> {
        let has_prefix = self.is_secure || cookies(headers).any(|(name, _)| name == self.secure);
        let counts = if has_prefix {
            self.secure
        } else {
            SESSION_COOKIE
        };
        cookies(headers)
            .filter(move |(name, _)| *name == counts)
            .map(|(_, value)| value)
    }
}

// === impl CookieJar ===

impl CookieJar {
    /// Makes the browser keep a session for as long as it lasts, and forget a session that it brought under
    /// another name: that session may belong to another caller.
    pub(in crate::http) fn keep(&self, session: &SealedSession, ttl: Duration) -> Vec<HeaderValue> {
        let name = if self.is_secure {
            self.names.secure
        } else {
            SESSION_COOKIE
        };
        let kept = self.cookie(name, session.expose(), ttl.as_secs());
        let others = self.brought.iter().filter(|other| **other != name);
        let forgotten = others.map(|other| self.cookie(other, "", 0));
        std::iter::once(kept).chain(forgotten).collect()
    }

    /// Makes the browser forget every session that it has brought.
    pub(in crate::http) fn forget(&self) -> impl Iterator<Item = HeaderValue> {
        self.brought.iter().map(|name| self.cookie(name, "", 0))
    }

    fn cookie(&self, name: &'static str, value: &str, max_age: u64) -> HeaderValue {
        let path = match self.path.as_str() {
            "" => "/",
            path => path,
        };
        let secure = if name == SESSION_COOKIE {
            ""
        } else {
            "; Secure"
        };
        let text = format!(
            "{name}={value}; Path={path}; Max-Age={max_age}; HttpOnly; SameSite=Strict{secure}"
        );
        cookie_value(&text)
    }

    /// The jar for a browser that an issuer has sent back: the page before belongs to the issuer. Of this jar a browser
    /// forgets every other session, because it has not sent the cookies that it has.
    pub(in crate::http) fn for_issuer(gateway: &AppState, is_secure: bool) -> Self {
        let secure = CookieNames::secure(&gateway.base_path);
        Self {
            names: CookieNames { is_secure, secure },
            is_secure,
            path: gateway.base_path.clone(),
            brought: vec![secure, SESSION_COOKIE],
        }
    }
}

/// The header that sets a cookie with a secret.
pub(in crate::http) fn cookie_value(text: &str) -> HeaderValue {
    let mut value = HeaderValue::try_from(text).expect("base64 and paths are visible ASCII");
    // A sensitive value is not printed in `Debug`, and HTTP/2 keeps it out of its header tables.
    value.set_sensitive(true);
    value
}

impl FromRequestParts<Arc<AppState>> for CookieJar {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        gateway: &Arc<AppState>,
    ) -> Result<Self, Problem> {
        let names = CookieNames::for_request(parts, gateway);
        if RequestSource::from_parts(parts, names.is_secure) == RequestSource::Foreign {
            let detail = "Only a page of the gateway itself can open or close a session. Nothing \
                          happened. A page elsewhere sends its API key with each request.";
            let problem = Problem::new(ProblemCode::OriginRefused, detail);
            let cause = "a page of another origin requested a session";
            return Err(problem.caused_by(cause.to_owned()));
        }
        let is_ours = |name: &str| {
            [names.secure, SESSION_COOKIE]
                .into_iter()
                .find(|it| *it == name)
        };
        let mut brought: Vec<_> = cookies(&parts.headers)
            .filter_map(|(name, _)| is_ours(name))
            .collect();
        brought.sort_unstable();
        brought.dedup();
        Ok(Self {
            // The header `Origin` shows that the page came over HTTPS, even if no proxy says so.
            is_secure: names.is_secure || is_of_https(&parts.headers),
            names,
            path: gateway.base_path.clone(),
            brought,
        })
    }
}

/// The names and values of all cookies. Malformed cookies are left out: other programs on the host may have
/// set them.
pub(in crate::http) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    let texts = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    texts
        .flat_map(|text| text.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
}

/// Whether a proxy says that the browser came over HTTPS. A false claim is harmless: its only effect is that
/// the cookie is one for HTTPS.
fn a_proxy_says_https(headers: &HeaderMap) -> bool {
    let header = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let first = |text: &'_ str| {
        text.split(',')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let by_custom = header(&X_FORWARDED_PROTO).is_some_and(|text| first(text).trim() == "https");
    let by_standard = header(&FORWARDED).is_some_and(|text| {
        first(text)
            .split(';')
            .any(|pair| matches!(pair.trim(), "proto=https" | "proto=\"https\""))
    });
    by_custom || by_standard
}

fn is_of_https(headers: &HeaderMap) -> bool {
    let origin = headers.get(http::header::ORIGIN);
    origin.is_some_and(|origin| origin.as_bytes().starts_with(b"https://"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&str, &str)| {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, value.parse().unwrap())
        };
        list.iter().map(header).collect()
    }

    fn names(is_secure: bool) -> CookieNames {
        CookieNames {
            is_secure,
            secure: OF_HOST,
        }
    }

    #[test]
    fn a_session_is_found_among_the_cookies_of_others() {
        let brought = headers(&[
            (
                "cookie",
                "a=b; latchgate-session=one;x; =; latchgate-sessions=no",
            ),
            ("cookie", "__Host-latchgate-session=two"),
        ]);
        let found = |is_secure| names(is_secure).sealed(&brought).collect::<Vec<_>>();
        assert_eq!(found(false), ["two"]);
        assert_eq!(found(true), ["two"]);
    }

    #[test]
    fn a_proxy_says_how_the_browser_came() {
        for header in [
            ("x-forwarded-proto", "https"),
            ("x-forwarded-proto", "HTTPS, http"),
            (
                "forwarded",
                "for=192.0.2.1;proto=https;by=x, for=y;proto=http",
            ),
            ("forwarded", "Proto=\"https\""),
        ] {
            assert!(a_proxy_says_https(&headers(&[header])), "{header:?}");
        }
        for header in [
            ("x-forwarded-proto", "http, https"),
            ("x-forwarded-proto", ""),
            ("forwarded", "for=192.0.2.1;proto=http, proto=https"),
            ("forwarded", "for=\"proto=https\""),
        ] {
            assert!(!a_proxy_says_https(&headers(&[header])), "{header:?}");
        }
    }
}
