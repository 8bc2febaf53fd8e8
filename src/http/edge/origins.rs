//! Which web pages may use the gateway.
//!
//! A browser sends some requests for any page without asking, a POST without a body among them, and
//! only keeps the answer from the page. So what could change something is refused before anything
//! happens, unless it comes from a page of ours or from one that is listed. So is a stream, which the
//! page could not read, but keep open for as long as it likes, and as many as it likes.

use axum::extract::Request;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, ORIGIN, VARY,
    },
};

use crate::{
    config::{HostPort, Origin},
    http::problem::{Problem, ProblemCode},
};

use super::copied::copied;

/// The origins that may use the gateway besides its own.
pub(super) struct Origins {
    listed: Vec<Origin>,
    /// Whether every request comes over TLS.
    over_tls: bool,
}

/// A page that is listed, as its browser names it.
pub(super) struct Listed(HeaderValue);

pub(super) const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a page may send: everything that some route takes.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Lock-Token, Idempotency-Key, Last-Event-ID, X-Request-Id, \
     traceparent",
);
/// What a page may read besides the body.
const EXPOSED: HeaderValue = HeaderValue::from_static("Location, Retry-After, X-Request-Id");
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
        route: &str,
        host: Option<&HostPort>,
    ) -> Result<Option<Listed>, Problem> {
        let headers = request.headers();
        let page = Page::in_headers(headers);
        if let Page::At(origin, name) = &page
            && self.listed.contains(origin)
        {
            return Ok(Some(Listed(copied(name))));
        }
        let only_looks = match *request.method() {
            Method::GET | Method::HEAD => !is_stream(route),
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
    pub(super) fn tell(&self, listed: Option<Listed>, method: &Method, headers: &mut HeaderMap) {
        if self.listed.is_empty() {
            return;
        }
        headers.append(VARY, HeaderValue::from_static("Origin"));
        let Some(Listed(origin)) = listed else { return };
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
pub(super) enum Page<'a> {
    /// None, or the request is no browser's.
    Unnamed,
    /// One with a name, which is repeated to it as it was said.
    At(Origin, &'a HeaderValue),
    /// One without a name that could be listed: `null`, an extension, or no origin at all.
    Foreign,
}

// === impl Page ===

impl<'a> Page<'a> {
    pub(super) fn in_headers(headers: &'a HeaderMap) -> Self {
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => Self::Unnamed,
            (Some(name), None) => Self::of(name),
            (Some(_), Some(_)) => Self::Foreign,
        }
    }

    /// Whether it is a page of this host, as far as its name says.
    pub(super) fn may_be_of(&self, host: Option<&HostPort>, over_tls: bool) -> bool {
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

/// Whether the answer to GET has no end.
fn is_stream(route: &str) -> bool {
    route == "/events"
}

/// Whether the browser says nothing else: that the request is its user's own doing, or one of a page
/// of this origin.
pub(super) fn is_of_this_site(headers: &HeaderMap) -> bool {
    headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .all(|site| matches!(site.as_bytes(), b"same-origin" | b"none"))
}

fn refused(headers: &HeaderMap) -> Problem {
    let said = |name: &HeaderName| headers.get(name).map(HeaderValue::as_bytes);
    let cause = match (said(&ORIGIN), said(&SEC_FETCH_SITE)) {
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
