//! Problems in the OpenAPI document: one response for each status, which all operations share, and with each
//! operation the codes that it can answer.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use serde_json::{Value, json};
use utoipa::openapi::{
    ContentBuilder, Header, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder,
    example::{Example, ExampleBuilder},
    extensions::Extensions,
    path::Operation,
    schema::Type,
};

use super::ProblemCode;

/// Where an operation lists the codes that it can answer.
const CODES: &str = "x-problem-codes";

/// The responses of an operation that can answer these problems, until [`share_problems`] has put the shared
/// ones in their places: one for each status, which only says which codes it can have.
pub(in crate::http) fn problem_responses(
    codes: &[ProblemCode],
) -> BTreeMap<String, RefOr<Response>> {
    let by_status = by_status(codes.iter().copied()).into_iter();
    let responses = by_status.map(|(status, codes)| {
        let response = ResponseBuilder::new().extensions(Some(listed(codes)));
        (status.as_str().to_owned(), RefOr::T(response.build()))
    });
    responses.collect()
}

/// Lets an operation answer these problems besides those that it names itself, names all of them in one list,
/// and refers to the shared responses.
pub(in crate::http) fn share_problems(operation: &mut Operation, others: &[ProblemCode]) {
    let mut codes = BTreeSet::new();
    let responses = &mut operation.responses.responses;
    for (status, response) in problem_responses(others) {
        responses.entry(status).or_insert(response);
    }
    for (status, response) in responses.iter_mut() {
        let RefOr::T(own) = response else { continue };
        let Some(listed) = own.extensions.as_ref().and_then(|it| it.get(CODES)) else {
            continue;
        };
        codes.extend(named(listed));
        let others = others.iter().copied();
        codes.extend(others.filter(|code| code.status().as_str() == status));
        let status = status.parse().expect("a problem has an HTTP status");
        *response = Ref::from_response_name(name(status)).into();
    }
    operation.extensions = Some(listed(codes));
}

/// The responses that all operations share, by their names: one for each status that a problem has.
pub(in crate::http) fn shared_responses() -> impl Iterator<Item = (String, Response)> {
    by_status(ProblemCode::ALL.iter().copied())
        .into_iter()
        .map(|(status, codes)| (name(status), shared_response(&codes)))
}

/// A header that is a text.
pub(in crate::http) fn text_header(description: &str) -> Header {
    let mut header = Header::new(ObjectBuilder::new().schema_type(Type::String));
    header.description = Some(description.to_owned());
    header
}

fn by_status(
    codes: impl Iterator<Item = ProblemCode>,
) -> BTreeMap<StatusCode, BTreeSet<ProblemCode>> {
    let mut by_status = BTreeMap::<_, BTreeSet<_>>::new();
    for code in codes {
        by_status.entry(code.status()).or_default().insert(code);
    }
    by_status
}

fn listed(codes: impl IntoIterator<Item = ProblemCode>) -> Extensions {
    let codes = codes.into_iter().map(ProblemCode::as_str);
    Extensions::from_iter([(CODES, codes.collect::<Value>())])
}

fn named(listed: &Value) -> impl Iterator<Item = ProblemCode> {
    let slugs = listed.as_array().into_iter().flatten();
    slugs.filter_map(|slug| ProblemCode::from_slug(slug.as_str()?))
}

/// What the shared response with a status is called: `TooManyRequests`.
fn name(status: StatusCode) -> String {
    let reason = status.canonical_reason();
    let reason = reason.expect("every status that a problem has is registered");
    let words = reason.split(' ').map(|word| {
        // As other names in the document: the generators make types of them.
        let (first, rest) = word.split_at(1);
        first.to_owned() + &rest.to_ascii_lowercase()
    });
    words.collect()
}

fn shared_response(codes: &BTreeSet<ProblemCode>) -> Response {
    let lines = codes
        .iter()
        .map(|code| format!("`{}`: {}", code.as_str(), code.meaning()))
        .collect::<Vec<_>>();
    let problem = Ref::from_schema_name("Problem");
    let mut content = ContentBuilder::new().schema(Some(problem));
    for code in codes {
        if let Some(example) = example(*code) {
            content = content.examples_from_iter([(code.as_str(), example)]);
        }
    }
    let mut response = ResponseBuilder::new()
        .description(lines.join("\n\n"))
        .content("application/problem+json", content.build());
    if codes.iter().any(|code| has_retry_after(*code)) {
        response = response.header("Retry-After", retry_after());
    }
    if codes.contains(&ProblemCode::Locked) {
        let text = "`wait=N`, if that was preferred.";
        response = response.header("Preference-Applied", text_header(text));
    }
    if codes.contains(&ProblemCode::RateLimited) {
        for (name, text) in [
            (
                "RateLimit-Policy",
                "The rate of the API key, if it has one.",
            ),
            ("RateLimit", "How much of it is left."),
        ] {
            response = response.header(name, text_header(text));
        }
    }
    if codes.contains(&ProblemCode::Unauthorized) {
        let text = "That the key is sent as `Bearer`, and whether it is the key that is wrong.";
        response = response.header("WWW-Authenticate", text_header(text));
    }
    if codes.contains(&ProblemCode::MethodNotAllowed) {
        response = response.header("Allow", text_header("The methods that the path takes."));
    }
    response.build()
}

/// Whether a problem says after how long to ask again.
fn has_retry_after(code: ProblemCode) -> bool {
    matches!(
        code,
        ProblemCode::Locked
            | ProblemCode::RateLimited
            | ProblemCode::TooManyWaiters
            | ProblemCode::TooManyLeases
            | ProblemCode::Overloaded
    )
}

fn retry_after() -> Header {
    let seconds = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(60));
    let mut header = Header::new(seconds);
    header.description = Some("After how many seconds to ask again.".to_owned());
    header
}

/// An example where a problem has fields of its own.
fn example(code: ProblemCode) -> Option<Example> {
    let (detail, extra) = match code {
        ProblemCode::InvalidRequest => (
            "`ttl_ms` is 50 ms; allowed are 100 to 86400000 ms.",
            json!({"errors": [{
                "field": "ttl_ms",
                "reason": "is 50 ms; allowed are 100 to 86400000 ms",
            }]}),
        ),
        ProblemCode::Locked => (
            "Somebody else holds the lock, and the wait is over.",
            json!({
                "holders": [{
                    "owner": "ci-runner-7",
                    "metadata": {"job": "4711"},
                    "fencing_token": 1_795_170_000_000_042_u64,
                    "expires_in_ms": 21_480,
                    "foreign": false,
                }],
                "holder_count": 1,
                "waited_ms": 10_003,
                "waiters": 3,
                "retry_after_ms": 4_371,
            }),
        ),
        ProblemCode::LeaseLost => (
            "This token does not hold the lock; somebody else does.",
            json!({"held": true}),
        ),
        _ => return None,
    };
    let mut problem = json!({
        "type": format!("/problems/{}", code.as_str()),
        "title": code.title(),
        "status": code.status().as_u16(),
        "detail": detail,
        "code": code.as_str(),
        "request_id": "9d3c55a01f7be284-1f4",
    });
    for (field, value) in extra.as_object().into_iter().flatten() {
        problem[field] = value.clone();
    }
    Some(ExampleBuilder::new().value(Some(problem)).build())
}
