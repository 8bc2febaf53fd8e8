//! The hosts for which the gateway answers, and the web pages that may use it.
//!
//! A web page can make any name of its own resolve to a loopback address (DNS rebinding), and is then on the
//! same origin as the gateway. The page cannot change the `Host` header of its requests, so the gateway
//! refuses hosts that are not its own.
//!
//! A browser sends some requests of any page without asking the gateway first, a POST without a body among
//! them, and only keeps the answer from the page. So a request that could change something is refused before
//! anything happens, unless it comes from a page of the gateway or from a listed page. A stream is refused
//! too: the page could not read it, but could keep any number of streams open.

use std::{cell::RefCell, net::IpAddr, rc::Rc};

use axum::extract::Request;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Uri, Version,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, HOST, ORIGIN, VARY,
    },
    request::Parts,
};

use crate::{
    config::{Config, Host, HostError, HostPort, Origin},
    http::problem::{Problem, ProblemCode},
};

use super::{headers::copied, routes::Class};

/// The hosts for which the gateway answers.
pub(super) enum Hosts {
    /// Any host that a request names: the API key decides what a request may do.
    Any,
    /// The gateway's own hosts, and the listed hosts.
    Own {
        /// The address that the gateway listens on.
        at: IpAddr,
        /// The hosts that `http.allowed_hosts` lists.
        listed: Vec<HostPort>,
    },
}

/// Name of the header `Host` as problems write it.
const FIELD: &str = "Host";

// === impl Hosts ===

impl Hosts {
    /// The hosts for a configuration. `open` says that there are no API keys.
    pub(super) fn new(config: &Config, open: bool) -> Self {
        let listed = config.http.allowed_hosts.clone();
        if !open && listed.is_empty() {
            return Self::Any;
        }
        Self::Own {
            at: config.listen.ip().to_canonical(),
            listed,
        }
    }

    /// Refuses a request that names no host, or a host for which the gateway does not answer.
    pub(super) fn check(&self, named: Option<&HostPort>) -> Result<(), Problem> {
        let Some(named) = named else {
            return Err(missing());
        };
        if self.serves(named) {
            return Ok(());
        }
        let detail = format!(
            "This gateway does not answer for the host {named}, which the request names. If the name is \
             yours, list it in http.allowed_hosts."
        );
        Err(Problem::new(ProblemCode::WrongHost, detail))
    }

    fn serves(&self, named: &HostPort) -> bool {
        let (at, listed) = match self {
            Self::Any => return true,
            Self::Own { at, listed } => (at, listed),
        };
        // Ports are not compared, because a client of a forwarded port names another port than the gateway's
        // own. The comparison would protect nothing: DNS rebinding changes only what a name resolves to, and
        // a page can choose any port.
        let is_own = match &named.host {
            host if host.is_loopback() => true,
            // A gateway that listens on all addresses accepts every address as its host: the addresses of
            // this machine, and those that are forwarded to it. No check is needed, because DNS rebinding
            // changes names only.
            Host::Address(_) if at.is_unspecified() => true,
            Host::Address(address) => address == at,
            Host::Name(_) => false,
        };
        is_own
            || listed.iter().any(|listed| {
                listed.host == named.host && (listed.port.is_none() || listed.port == named.port)
            })
    }
}

/// The host that a request names. `None`: the request is HTTP/1.0 and names no host, which a probe may do.
///
/// A request with two `Host` headers, or with different hosts in its target and its header, is refused: a
/// proxy in front may have believed the other host.
pub(super) fn named_host(
    headers: &HeaderMap,
    uri: &Uri,
    version: Version,
) -> Result<Option<Rc<HostPort>>, Problem> {
    let refuse = |reason| Problem::invalid_field(FIELD, reason);
    let mut headers = headers.get_all(HOST).iter();
    let header = match (headers.next(), headers.next()) {
        (None, _) => None,
        (Some(header), None) => {
            let host = host_in(header);
            Some(host.map_err(|error| refuse(format!("is no host; it takes {error}")))?)
        }
        (Some(_), Some(_)) => return Err(refuse("is given more than once".to_owned())),
    };
    let target = match uri.authority() {
        None => None,
        Some(authority) => {
            let host = authority.as_str().parse::<HostPort>();
            let host = host.map_err(|_| refuse("in the target is no host".to_owned()))?;
            Some(Rc::new(host))
        }
    };
    match (target, header) {
        (Some(target), Some(header)) if target != header => {
            Err(refuse("differs from the host in the target".to_owned()))
        }
        (None, None) if version > Version::HTTP_10 => Err(missing()),
        (target, header) => Ok(header.or(target)),
    }
}

fn missing() -> Problem {
    Problem::invalid_field(FIELD, "is missing")
}

thread_local! {
    /// A cache of the last `Host` header that this thread has read, and the host in it: nearly all requests
    /// name the same host.
    static LAST: RefCell<Option<(HeaderValue, Rc<HostPort>)>> = const { RefCell::new(None) };
}

/// Reads the host that a header names, from the cache of the thread if the header is the same as the last.
fn host_in(header: &HeaderValue) -> Result<Rc<HostPort>, HostError> {
    LAST.with_borrow_mut(|last| {
        if let Some((written, host)) = last
            && written == header
        {
            return Ok(Rc::clone(host));
        }
        let host = header.to_str().unwrap_or_default().parse::<HostPort>();
        let host = Rc::new(host?);
        *last = Some((copied(header), Rc::clone(&host)));
        Ok(host)
    })
}

/// The origins of web pages that may use the gateway besides its own pages.
pub(super) struct Origins {
    listed: Vec<Origin>,
    /// Whether every request comes over TLS, because the gateway has a certificate.
    over_tls: bool,
}

/// The page for which a request was sent, as far as its browser says. A browser sends a cookie with requests
/// of other pages too, even of listed pages; it never adds an API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) enum RequestSource {
    /// A page of this gateway, or the user, who typed the address.
    Ours,
    /// Unknown, because the sender of the request is no browser, or an old one.
    Unknown,
    /// A page of another origin than the gateway's.
    Foreign,
}

/// The origin of a listed page, as its browser names it.
pub(super) struct ListedOrigin(HeaderValue);

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Request headers that a page of a listed origin may send: every header that some route takes.
const HEADERS: HeaderValue = HeaderValue::from_static(
    "Authorization, Content-Type, Fencing-Token, Lock-Token, Idempotency-Key, If-None-Match, \
     Last-Event-ID, Prefer, X-Request-Id, traceparent",
);
/// Response headers that a page of a listed origin may read.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "ETag, Latchgate-Warning, Location, Preference-Applied, RateLimit, RateLimit-Policy, \
     Retry-After, X-Request-Id",
);
/// For how many seconds a browser may remember a preflight: two hours, the longest time that any browser
/// accepts.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

// === impl Origins ===

impl Origins {
    pub(super) fn new(listed: Vec<Origin>, over_tls: bool) -> Self {
        Self { listed, over_tls }
    }

    /// Refuses a request that could change something or keeps a connection, if a browser sent it for a page
    /// that is neither of the gateway nor listed. For a request that is not refused, returns its origin if
    /// that is listed.
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
            // A preflight asks what a request may do, and changes nothing.
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

    /// Lets a listed page read the answer. `Vary` keeps a cache from giving the answer for one page to
    /// another page.
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
    /// No page, or the sender is no browser.
    Unnamed,
    /// A page whose origin can be listed, and the header with it, which the answer repeats.
    At(Origin, &'a HeaderValue),
    /// A page whose origin cannot be listed: `null`, an extension, or a text that is no origin.
    Foreign,
}

// === impl Page ===

impl<'a> Page<'a> {
    fn in_headers(headers: &'a HeaderMap) -> Self {
        let mut origins = headers.get_all(ORIGIN).iter();
        match (origins.next(), origins.next()) {
            (None, _) => Self::Unnamed,
            (Some(name), None) => Self::from_header(name),
            (Some(_), Some(_)) => Self::Foreign,
        }
    }

    /// Whether the page may be a page of this host, by its origin.
    fn may_be_of(&self, host: Option<&HostPort>, over_tls: bool) -> bool {
        match self {
            Self::Unnamed => true,
            Self::At(origin, _) => host.is_some_and(|host| origin.is_of(host, over_tls)),
            Self::Foreign => false,
        }
    }

    fn from_header(name: &'a HeaderValue) -> Self {
        let origin = name.to_str().ok().and_then(|text| text.parse().ok());
        origin.map_or(Self::Foreign, |origin| Self::At(origin, name))
    }
}

// === impl RequestSource ===

impl RequestSource {
    /// The sender of a request. `over_https` says that the browser is known to use HTTPS: a page over plain
    /// HTTP is then of another origin.
    pub(in crate::http) fn from_parts(parts: &Parts, over_https: bool) -> Self {
        let headers = &parts.headers;
        let page = Page::in_headers(headers);
        // The edge has checked the host before: a request with a missing or ambiguous host does not come this
        // far.
        let host = named_host(headers, &parts.uri, parts.version)
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

/// Whether `Sec-Fetch-Site` is missing, or says that the request is the user's own action or comes from a
/// page of this origin.
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

    fn serving(at: &str, listed: &[&str]) -> Hosts {
        let mut config = Config {
            listen: format!("{at}:7420").parse().unwrap(),
            ..Config::default()
        };
        config.http.allowed_hosts = listed.iter().map(|host| host.parse().unwrap()).collect();
        Hosts::new(&config, true)
    }

    #[test]
    fn each_request_names_its_own_host_whatever_the_last_one_named() {
        for host in ["a.example", "b.example:1", "b.example:1", "a.example"] {
            let headers = HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]);
            let named = named_host(&headers, &Uri::from_static("/"), Version::HTTP_11).unwrap();
            assert_eq!(named.as_deref(), Some(&host.parse().unwrap()));
        }
    }

    fn served<'a>(hosts: &Hosts, named: &[&'a str]) -> Vec<&'a str> {
        let is_served = |host: &&str| hosts.serves(&host.parse().unwrap());
        named.iter().copied().filter(is_served).collect()
    }

    const NAMED: &[&str] = &[
        "localhost",
        "LOCALHOST.:9",
        "127.0.0.1:7420",
        "[::1]:7420",
        "192.0.2.1:7420",
        "192.0.2.2",
        "0.0.0.0:7420",
        "evil.example",
        "localhost.evil.example",
        "locks.example.com",
        "locks.example.com:8080",
    ];

    #[test]
    fn on_loopback_it_answers_for_loopback_alone() {
        assert_eq!(served(&serving("127.0.0.1", &[]), NAMED), &NAMED[..4]);
        assert_eq!(served(&serving("[::1]", &[]), NAMED), &NAMED[..4]);
    }

    #[test]
    fn it_answers_for_the_address_it_listens_on() {
        assert_eq!(served(&serving("192.0.2.1", &[]), NAMED), &NAMED[..5]);
        assert_eq!(served(&serving("0.0.0.0", &[]), NAMED), &NAMED[..7]);
        assert_eq!(served(&serving("[::]", &[]), NAMED), &NAMED[..7]);
    }

    #[test]
    fn it_answers_for_what_is_listed_with_any_port_if_none_is() {
        let named = [
            "locks.example.com",
            "locks.example.com:8080",
            "a.locks.example.com",
        ];
        let any_port = serving("127.0.0.1", &["Locks.Example.com"]);
        assert_eq!(served(&any_port, &named), &named[..2]);
        let one_port = serving("127.0.0.1", &["locks.example.com:8080"]);
        assert_eq!(served(&one_port, &named), &named[1..2]);
    }

    #[test]
    fn with_keys_it_answers_for_every_host_unless_some_are_listed() {
        let mut config = Config::default();
        assert!(Hosts::new(&config, false).serves(&"evil.example".parse().unwrap()));
        config.http.allowed_hosts = vec!["a".parse().unwrap()];
        assert!(!Hosts::new(&config, false).serves(&"evil.example".parse().unwrap()));
    }
}
