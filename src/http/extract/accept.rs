//! The media types and codings that a request accepts.

use axum::extract::FromRequestParts;
use http::{HeaderMap, HeaderValue, header::ACCEPT, request::Parts};

use crate::http::problem::{Problem, ProblemCode};

/// Extractor that refuses a request which does not accept HTML (`IS_HTML`) or JSON, before the handler does
/// anything.
pub(in crate::http) struct Accepts<const IS_HTML: bool>;

pub(in crate::http) type AcceptsJson = Accepts<false>;
pub(in crate::http) type AcceptsHtml = Accepts<true>;

const JSON: [&str; 3] = ["application/json", "application/*", "*/*"];
const HTML: [&str; 3] = ["text/html", "text/*", "*/*"];
const EVENTS: [&str; 3] = ["text/event-stream", "text/*", "*/*"];

// === impl Accepts ===

impl<S: Sync, const IS_HTML: bool> FromRequestParts<S> for Accepts<IS_HTML> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let form = if IS_HTML { HTML } else { JSON };
        must_accept(&parts.headers, &[form]).map(|()| Self)
    }
}

/// Refuses a request that does not accept a stream of events whose data is JSON. A request that accepts only
/// JSON is served too: `curl --json` always sends that header.
pub(in crate::http) fn must_accept_events(headers: &HeaderMap) -> Result<(), Problem> {
    must_accept(headers, &[EVENTS, JSON])
}

/// Refuses a request that accepts none of these media types.
fn must_accept(headers: &HeaderMap, forms: &[[&str; 3]]) -> Result<(), Problem> {
    let values = || headers.get_all(ACCEPT).iter();
    if forms
        .iter()
        .any(|ranges| accepts(values, ranges) != Some(false))
    {
        return Ok(());
    }
    let given = forms[0][0];
    let detail = format!("This route answers {given}, which the header Accept excludes.");
    Err(Problem::new(ProblemCode::NotAcceptable, detail))
}

/// Whether a header accepts something. `ranges` are the media ranges or codings that match it, the most
/// specific first: the first of them that the header lists decides. `None`: the header lists nothing.
///
/// A value that is not text, or a weight that is no number, excludes nothing: a malformed header is no reason
/// to refuse a request.
pub(in crate::http) fn accepts<'a, I: Iterator<Item = &'a HeaderValue>>(
    values: impl Fn() -> I,
    ranges: &[&str],
) -> Option<bool> {
    for range in ranges {
        for item in items(values()) {
            let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
            if name.trim().eq_ignore_ascii_case(range) {
                return Some(!parameters.split(';').any(is_zero));
            }
        }
    }
    items(values()).next().map(|_| false)
}

/// The items of a comma-separated header, trimmed and without empty items.
pub(in crate::http) fn items<'a>(
    values: impl Iterator<Item = &'a HeaderValue>,
) -> impl Iterator<Item = &'a str> {
    let texts = values.filter_map(|value| value.to_str().ok());
    let items = texts.flat_map(|text| text.split(',')).map(str::trim);
    items.filter(|item| !item.is_empty())
}

/// Whether a parameter is a weight of zero, which excludes the item that it belongs to.
fn is_zero(parameter: &str) -> bool {
    let weight = parameter.split_once('=');
    weight.is_some_and(|(name, value)| {
        name.trim().eq_ignore_ascii_case("q")
            && value.trim().starts_with('0')
            && value
                .trim()
                .trim_end_matches('0')
                .trim_end_matches('.')
                .trim_matches('0')
                .is_empty()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(accept: &[&str]) -> Option<bool> {
        let values: Vec<HeaderValue> = accept.iter().map(|value| value.parse().unwrap()).collect();
        accepts(|| values.iter(), &JSON)
    }

    #[test]
    fn accepts_everything_when_nothing_is_said() {
        for accept in [&[][..], &[""]] {
            assert_eq!(json(accept), None, "{accept:?}");
        }
        for accept in ["*/*", "application/*", "a/b, */*;q=0.1", "*/*;q=x"] {
            assert_eq!(json(&[accept]), Some(true), "{accept:?}");
        }
    }

    #[test]
    fn lets_the_most_specific_range_decide() {
        assert_eq!(json(&["*/*;q=0, application/json;q=0.7"]), Some(true));
        assert_eq!(json(&["application/json;q=0, */*"]), Some(false));
        assert_eq!(json(&["application/*;q=0.000", "*/*;q=1.0"]), Some(false));
        let accepted = json(&["Application/JSON; charset=utf-8; q=0.001"]);
        assert_eq!(accepted, Some(true));
    }

    #[test]
    fn is_excluded_by_a_header_that_names_other_types_only() {
        for accept in [
            &["text/html"][..],
            &["application/problem+json"],
            &["text/*;q=1", "a/b"],
        ] {
            assert_eq!(json(accept), Some(false), "{accept:?}");
        }
    }
}
