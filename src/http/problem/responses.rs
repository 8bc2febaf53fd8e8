//! Problems in the OpenAPI document: one response for each status, which all operations share, and with each
//! operation the codes that it can answer.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use serde_json::{Value, json};
use utoipa::openapi::{
    ContentBuilder, Header, ObjectBuilder, Ref, Response, ResponseBuilder,
    example::{Example, ExampleBuilder},
    extensions::Extensions,
    path::Operation,
    schema::Type,
};

use super::ProblemCode;

/// Codes that several operations answer, by what they have in common.
pub(in crate::http) mod groups {
    use super::ProblemCode::{self as Code};

    /// The caller needs an API key with a permission.
    pub(in crate::http) const KEY: &[Code] = &[
        Code::Unauthorized,
        Code::Forbidden,
        Code::OriginRefused,
        Code::RateLimited,
    ];
    /// The caller needs the token of the lease and nothing else.
    pub(in crate::http) const TOKEN: &[Code] = &[Code::OriginRefused, Code::RateLimited];
    /// The request has a body.
    pub(in crate::http) const BODY: &[Code] = &[
        Code::RequestTimeout,
        Code::TooLarge,
        Code::UnsupportedMediaType,
    ];
    /// The request may ask for a TTL.
    pub(in crate::http) const TTL: &[Code] = &[Code::LimitExceeded];
    /// The request asks for a lock, and may wait for it.
    pub(in crate::http) const GRANT: &[Code] = &[
        Code::IdempotencyMismatch,
        Code::IdempotencyExpired,
        Code::Superseded,
        Code::Locked,
        Code::TooManyWaiters,
        Code::TooManyLeases,
        Code::UnsupportedByStore,
        Code::FenceExhausted,
    ];
    /// The request is about the lease of a token.
    pub(in crate::http) const LEASE: &[Code] = &[Code::LeaseLost];
    /// The request is about whoever holds the lock.
    pub(in crate::http) const HOLDER: &[Code] = &[Code::HolderChanged, Code::NotHeld];
    /// The store is asked, and changes nothing.
    pub(in crate::http) const LOOK: &[Code] =
        &[Code::ForeignData, Code::StoreUnavailable, Code::Draining];
    /// The store is told to change something.
    pub(in crate::http) const WRITE: &[Code] = &[
        Code::ForeignData,
        Code::StoreUnavailable,
        Code::Draining,
        Code::OutcomeUnknown,
    ];
}

/// Where an operation lists the codes that it can answer.
const CODES: &str = "x-problem-codes";

/// Lets an operation answer these problems: lists their codes, and refers to the shared response of each status that is
/// no answer of the operation's own.
pub(in crate::http) fn add_problems(operation: &mut Operation, codes: BTreeSet<ProblemCode>) {
    let responses = &mut operation.responses.responses;
    for status in codes.iter().map(|code| code.status()) {
        let own = responses.entry(status.as_str().to_owned());
        own.or_insert_with(|| Ref::from_response_name(name(status)).into());
    }
    let codes = codes.into_iter().map(ProblemCode::as_str);
    operation.extensions = Some(Extensions::from_iter([(CODES, codes.collect::<Value>())]));
}

/// The responses that all operations share, by their names: one for each status that a problem has.
pub(in crate::http) fn shared_responses() -> impl Iterator<Item = (String, Response)> {
    let mut by_status = BTreeMap::<_, BTreeSet<_>>::new();
    for code in ProblemCode::ALL {
        by_status.entry(code.status()).or_default().insert(*code);
    }
    let shared = |(status, codes)| (name(status), shared_response(&codes));
    by_status.into_iter().map(shared)
}

/// A header that is a text.
pub(in crate::http) fn text_header(description: &str) -> Header {
    let mut header = Header::new(ObjectBuilder::new().schema_type(Type::String));
    header.description = Some(description.to_owned());
    header
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
