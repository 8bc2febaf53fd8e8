//! Which form of an answer the request accepts.

use std::time::Duration;

use axum::extract::FromRequestParts;
use http::{HeaderMap, header::ACCEPT, request::Parts};

use crate::http::{
    edge::{RequestContext, RequestId},
    problem::{Problem, ProblemCode},
    serve::{LongRequestPermit, LongRequests, UserTimeout},
};

use super::lock_token::LOCK_TOKEN;

/// The request accepts JSON. Checked before anything is done.
pub(in crate::http) struct AcceptsJson;

/// The request accepts HTML.
pub(in crate::http) struct AcceptsHtml;

/// The form in which a problem is explained.
pub(in crate::http) enum ProblemPage {
    Json,
    Html,
}

// === impl AcceptsJson ===

impl<S: Sync> FromRequestParts<S> for AcceptsJson {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if quality(&parts.headers, "application", "json") > 0 {
            Ok(Self)
        } else {
            Err(not_acceptable("application/json"))
        }
    }
}

// === impl AcceptsHtml ===

impl<S: Sync> FromRequestParts<S> for AcceptsHtml {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        if quality(&parts.headers, "text", "html") > 0 {
            Ok(Self)
        } else {
            Err(not_acceptable("text/html"))
        }
    }
}

// === impl ProblemPage ===

impl<S: Sync> FromRequestParts<S> for ProblemPage {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let json = quality(&parts.headers, "application", "json");
        let html = quality(&parts.headers, "text", "html");
        match (json, html) {
            (0, 0) => Err(not_acceptable("application/json or text/html")),
            _ if html > json => Ok(Self::Html),
            _ => Ok(Self::Json),
        }
    }
}

/// Refuses a request that does not accept a stream of events whose data is JSON. One that accepts
/// JSON gets it all the same: `curl --json` says that it does, and means nothing by it.
pub(super) fn event_stream(headers: &HeaderMap) -> Result<(), Problem> {
    if quality(headers, "text", "event-stream") > 0 || quality(headers, "application", "json") > 0 {
        Ok(())
    } else {
        Err(not_acceptable("text/event-stream"))
    }
}

fn not_acceptable(given: &str) -> Problem {
    let detail = format!("This route answers {given}, which the header Accept excludes.");
    Problem::new(ProblemCode::NotAcceptable, detail)
}

/// How much a request wants a media type, in thousandths: 1000 if it says nothing.
///
/// The most specific range that matches decides. A header that is not text, or whose quality is no
/// number, excludes nothing: it is no reason to refuse to serve.
fn quality(headers: &HeaderMap, kind: &str, subtype: &str) -> u16 {
    let mut best: Option<(u8, u16)> = None;
    let mut ranges = 0;
    for value in headers.get_all(ACCEPT) {
        let Ok(value) = value.to_str() else {
            return 1000;
        };
        for range in value
            .split(',')
            .map(str::trim)
            .filter(|range| !range.is_empty())
        {
            ranges += 1;
            let mut parts = range.split(';').map(str::trim);
            let Some((a, b)) = parts.next().and_then(|media| media.split_once('/')) else {
                continue;
            };
            let specific = match (a, b) {
                ("*", "*") => 0,
                (a, "*") if a.eq_ignore_ascii_case(kind) => 1,
                (a, b) if a.eq_ignore_ascii_case(kind) && b.eq_ignore_ascii_case(subtype) => 2,
                _ => continue,
            };
            if best.is_none_or(|(other, _)| specific >= other) {
                best = Some((specific, parts.find_map(weight).unwrap_or(1000)));
            }
        }
    }
    match best {
        Some((_, quality)) => quality,
        None if ranges == 0 => 1000,
        None => 0,
    }
}

/// The weight that a parameter gives, if it is a weight: `q=0.5` is 500.
fn weight(parameter: &str) -> Option<u16> {
    let (name, value) = parameter.split_once('=')?;
    if !name.trim_end().eq_ignore_ascii_case("q") {
        return None;
    }
    let (whole, fraction) = value.trim().split_once('.').unwrap_or((value.trim(), ""));
    if whole == "1" {
        return Some(1000);
    }
    let digits = format!("{fraction:0<3}");
    digits.get(..3)?.parse().ok()
}

// === Event stream ===
//
// A request whose answer is a stream of events.

/// The request accepts a stream of events. With what a handler must know of it to give one.
///
/// Dropped, it lets the caller be silent for as long as any other.
pub(in crate::http) struct EventStream {
    /// What the request is called in the log.
    request_id: RequestId,
    /// For how long the caller may be silent.
    user_timeout: UserTimeout,
    /// The connection that it takes for as long as it lasts.
    _permit: LongRequestPermit,
}

// === impl EventStream ===

impl EventStream {
    /// What the request is called in the log.
    pub(in crate::http) fn request_id(&self) -> &str {
        self.request_id.as_str()
    }

    /// For how long the caller may leave unacknowledged what it is sent, until it counts as gone.
    pub(in crate::http) fn set_user_timeout(&self, limit: Duration) {
        self.user_timeout.set(limit);
    }
}

impl<S: Sync> FromRequestParts<S> for EventStream {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        event_stream(&parts.headers)?;
        let Ok(long_requests) = LongRequests::from_request_parts(parts, state).await;
        let permit = if parts.headers.contains_key(LOCK_TOKEN) {
            long_requests.acquire_with_lease()?
        } else {
            long_requests.acquire()?
        };
        Ok(Self {
            request_id: RequestContext::of(parts).request_id(),
            user_timeout: UserTimeout::of(&parts.extensions),
            _permit: permit,
        })
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.user_timeout.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(accept: &[&str]) -> u16 {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        quality(&headers, "application", "json")
    }

    #[test]
    fn accepts_everything_when_nothing_is_said() {
        for accept in [
            &[][..],
            &[""],
            &["*/*"],
            &["application/*"],
            &["a/b, */*;q=0.1"],
        ] {
            assert!(json(accept) > 0, "{accept:?}");
        }
    }

    #[test]
    fn lets_the_most_specific_range_decide() {
        assert_eq!(json(&["*/*;q=0.1, application/json;q=0.7"]), 700);
        assert_eq!(json(&["application/json;q=0, */*"]), 0);
        assert_eq!(json(&["application/*;q=0.25", "*/*;q=1.0"]), 250);
        assert_eq!(json(&["Application/JSON; charset=utf-8; q=0.001"]), 1);
    }

    #[test]
    fn is_excluded_by_a_header_that_names_other_types_only() {
        for accept in [
            &["text/html"][..],
            &["application/problem+json"],
            &["text/*;q=1", "a/b"],
        ] {
            assert_eq!(json(accept), 0, "{accept:?}");
        }
    }
}
