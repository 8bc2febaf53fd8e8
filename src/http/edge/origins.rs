//! Which web pages may use the gateway.
//!
//! A browser sends some requests for any page without asking, a POST without a body among them, and only
//! keeps the answer from the page. So a request that could change something is refused before anything
//! happens, unless it comes from a page of the gateway or from one that is listed. A stream is refused too:
//! the page could not read it, but could keep any number of them open.

use axum::extract::Request;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, ORIGIN, VARY,
    },
    request::Parts,
};

use crate::{
    config::{HostPort, Origin},
    http::problem::{Problem, ProblemCode},
};

use super::{hosts, request_id::copied, routes::Class};

/// The origins that may use the gateway besides its own.
pub(super) struct Origins {
    listed: Vec<Origin>,
    /// Whether every request comes over TLS.
    over_tls: bool,
}

/// For whom a request was sent, as far as its browser says. A cookie goes along with requests of other
/// pages too, those that are listed among them; a key never does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum RequestSource {
    /// For a page of ours, or for the user, who typed the address.
    Ours,
    /// The request does not say: its sender is no browser, or an old one.
    Unknown,
    /// For a page of another origin.
    Foreign,
}

/// A page that is listed, as its browser names it.
pub(super) struct ListedOrigin(HeaderValue);

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a page may send: everything that some route takes.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Lock-Token, Idempotency-Key, If-None-Match, Last-Event-ID, Prefer, \
     X-Request-Id, traceparent",
);
/// What a page may read besides the body.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "ETag, Latchgate-Warning, Link, Location, Preference-Applied, RateLimit, RateLimit-Policy, \
     Retry-After, X-Request-Id",
);
/// For how many seconds a browser need not ask again: two hours, the most that any of them takes.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

// === impl Origins ===

impl Origins {
    pub(super) fn new(listed: Vec<Origin>, over_tls: bool) -> Self {
        Self { listed, over_tls }
    }

    /// Refuses a request that could change something or keeps a connection, if a browser sent it for
    /// a page that is neither ours nor listed. Of others it says whether the page is listed.
    pub(super) fn check(
        &self,
        request: &Request,
        class: Class,
        host: Option<&HostPort>,
    ) -> Result<Option<ListedOrigin>, Problem> {
        let headers = request.headers();
        let page = Page::in_headers(headers);
        if let Page::At(origin, name) = &page
            && self.listed.contains(origin)
        {
            return Ok(Some(ListedOrigin(copied(name))));
        }
        let only_looks = match *request.method() {
            Method::GET | Method::HEAD => class != Class::Listens,
            // It asks what it may do.
            Method::OPTIONS => true,
            _ => false,
        };
        if only_looks {
            return Ok(None);
        }
        if page.may_be_of(host, self.over_tls) && is_of_this_site(headers) {
            Ok(None)
        } else {
            Err(refused(headers))
        }
    }

    /// Lets a page that is listed read the answer. What another one could get must not come from a
    /// cache that asked for it.
    pub(super) fn insert_headers(
        &self,
        listed: Option<ListedOrigin>,
        method: &Method,
        headers: &mut HeaderMap,
    ) {
        if self.listed.is_empty() {
            return;
        }
        headers.append(VARY, HeaderValue::from_static("Origin"));
        let Some(ListedOrigin(origin)) = listed else {
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        if let (&Method::OPTIONS, Some(methods)) = (method, headers.get(ALLOW).cloned()) {
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HEADERS);
            headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        }
    }
}

/// The page for which a browser sends a request.
enum Page<'a> {
    /// None, or the request is no browser's.
    Unnamed,
    /// One with a name, which is repeated to it as it was said.
    At(Origin, &'a HeaderValue),
    /// One without a name that could be listed: `null`, an extension, or no origin at all.
    Foreign,
}

// === impl Page ===

impl<'a> Page<'a> {
    fn in_headers(headers: &'a HeaderMap) -> Self {
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => Self::Unnamed,
            (Some(name), None) => Self::of(name),
            (Some(_), Some(_)) => Self::Foreign,
        }
    }

    /// Whether it is a page of this host, as far as its name says.
    fn may_be_of(&self, host: Option<&HostPort>, over_tls: bool) -> bool {
        match self {
            Self::Unnamed => true,
            Self::At(origin, _) => host.is_some_and(|host| origin.is_of(host, over_tls)),
            Self::Foreign => false,
        }
    }

    fn of(name: &'a HeaderValue) -> Self {
        let origin = name.to_str().ok().and_then(|text| text.parse().ok());
        origin.map_or(Self::Foreign, |origin| Self::At(origin, name))
    }
}

// === impl RequestSource ===

impl RequestSource {
    /// The sender of a request. `over_https` says that a browser is known to have sent it over HTTPS: a
    /// page that came over plain HTTP is another one then.
    pub(in crate::http) fn of(parts: &Parts, over_https: bool) -> Self {
        let headers = &parts.headers;
        let page = Page::in_headers(headers);
        // It was looked at before: a request that names no host, or two, did not get here.
        let host = hosts::named(headers, &parts.uri, parts.version)
            .ok()
            .flatten();
        if !page.may_be_of(host.as_deref(), over_https) || !is_of_this_site(headers) {
            Self::Foreign
        } else if matches!(page, Page::Unnamed) && !headers.contains_key(SEC_FETCH_SITE) {
            Self::Unknown
        } else {
            Self::Ours
        }
    }
}

/// Whether the browser says nothing else: that the request is its user's own doing, or one of a page
/// of this origin.
fn is_of_this_site(headers: &HeaderMap) -> bool {
    headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))
}

fn refused(headers: &HeaderMap) -> Problem {
    let header = |name: &HeaderName| headers.get(name).map(HeaderValue::as_bytes);
    let cause = match (header(&ORIGIN), header(&SEC_FETCH_SITE)) {
        (Some(origin), _) => format!("the origin was {}", origin.escape_ascii()),
        (None, Some(site)) => format!("the browser said {}", site.escape_ascii()),
        (None, None) => "the origin was empty".to_owned(),
    };
    Problem::new(
        ProblemCode::OriginRefused,
        "A browser sent this request for a web page of another origin. Nothing happened. If the page \
         is yours, list its origin in http.allowed_origins.",
    )
    .caused_by(cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sender(headers: &[(&str, &str)]) -> RequestSource {
        let mut request = http::Request::get("/").header("host", "locks.example:7420");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        RequestSource::of(&request.body(()).unwrap().into_parts().0, false)
    }

    #[test]
    fn is_ours_only_if_everything_says_so() {
        const OURS: (&str, &str) = ("origin", "https://locks.example:7420");
        let header = |site| ("sec-fetch-site", site);
        for headers in [
            &[OURS][..],
            &[header("same-origin")],
            &[header("none")],
            &[OURS, header("same-origin")],
        ] {
            assert_eq!(sender(headers), RequestSource::Ours, "{headers:?}");
        }
        for headers in [
            &[header("same-site")][..],
            &[header("cross-site")],
            &[OURS, header("same-site")],
            &[OURS, OURS],
            &[("origin", "null")],
            &[("origin", "https://locks.example")],
            &[
                ("origin", "https://other.example:7420"),
                header("same-origin"),
            ],
        ] {
            assert_eq!(sender(headers), RequestSource::Foreign, "{headers:?}");
        }
        assert_eq!(sender(&[("x-requested-with", "x")]), RequestSource::Unknown);
    }
}
