//! Problems in the OpenAPI document: one shared response for each status, and for each operation the codes
//! that it can answer.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use serde_json::Value;
use utoipa::openapi::{
    ContentBuilder, Header, ObjectBuilder, Ref, Response, ResponseBuilder, extensions::Extensions,
    path::Operation, schema::Type,
};

use super::ProblemCode;

/// Headers of problem responses: the code of the problem, the header's name, and its description.
const HEADERS: [(ProblemCode, &str, &str); 5] = [
    (
        ProblemCode::Locked,
        "Preference-Applied",
        "`wait=N`, if the request preferred it.",
    ),
    (
        ProblemCode::RateLimited,
        "RateLimit-Policy",
        "The rate of the API key, if it has one.",
    ),
    (
        ProblemCode::RateLimited,
        "RateLimit",
        "How many requests of the rate are left.",
    ),
    (
        ProblemCode::Unauthorized,
        "WWW-Authenticate",
        "The scheme `Bearer`, and an error if the key is wrong.",
    ),
    (
        ProblemCode::MethodNotAllowed,
        "Allow",
        "The methods that the path takes.",
    ),
];

/// Extension in which an operation lists the codes that it can answer.
const CODES: &str = "x-problem-codes";

/// Adds problems to an operation: lists their codes, and refers to the shared response of each status for
/// which the operation has no response of its own.
pub(in crate::http) fn add_problems(operation: &mut Operation, codes: BTreeSet<ProblemCode>) {
    let responses = &mut operation.responses.responses;
    for status in codes.iter().map(|code| code.status()) {
        let own = responses.entry(status.as_str().to_owned());
        own.or_insert_with(|| Ref::from_response_name(name(status)).into());
    }
    let codes = codes.into_iter().map(ProblemCode::as_str);
    operation.extensions = Some(Extensions::from_iter([(CODES, codes.collect::<Value>())]));
}

/// The responses that all operations share, with their names: one for each status that a problem can have.
pub(in crate::http) fn shared_responses() -> impl Iterator<Item = (String, Response)> {
    let mut by_status = BTreeMap::<_, BTreeSet<_>>::new();
    for code in ProblemCode::ALL {
        by_status.entry(code.status()).or_default().insert(*code);
    }
    let shared = |(status, codes)| (name(status), shared_response(&codes));
    by_status.into_iter().map(shared)
}

/// A response header whose value is a text.
pub(in crate::http) fn text_header(description: &str) -> Header {
    let mut header = Header::new(ObjectBuilder::new().schema_type(Type::String));
    header.description = Some(description.to_owned());
    header
}

/// Name of the shared response with a status, such as `TooManyRequests`.
fn name(status: StatusCode) -> String {
    let reason = status.canonical_reason();
    let reason = reason.expect("every status that a problem has is registered");
    let words = reason.split(' ').map(|word| {
        // The name begins with a capital letter, like other names in the OpenAPI document: code generators make type
        // names of them.
        let (first, rest) = word.split_at(1);
        first.to_owned() + &rest.to_ascii_lowercase()
    });
    words.collect()
}

fn shared_response(codes: &BTreeSet<ProblemCode>) -> Response {
    let line = |code: &ProblemCode| format!("`{}`: {}", code.as_str(), code.meaning());
    let lines: Vec<_> = codes.iter().map(line).collect();
    let problem = Ref::from_schema_name("Problem");
    let content = ContentBuilder::new().schema(Some(problem)).build();
    let mut response = ResponseBuilder::new()
        .description(lines.join("\n\n"))
        .content("application/problem+json", content);
    // One problem code for each HTTP status whose responses say after how long to ask again.
    let retried = [
        ProblemCode::Locked,
        ProblemCode::RateLimited,
        ProblemCode::Overloaded,
    ];
    if retried.iter().any(|code| codes.contains(code)) {
        response = response.header("Retry-After", retry_after());
    }
    for (code, name, text) in HEADERS {
        if codes.contains(&code) {
            response = response.header(name, text_header(text));
        }
    }
    response.build()
}

fn retry_after() -> Header {
    let seconds = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(60));
    let mut header = Header::new(seconds);
    header.description = Some("Seconds after which to ask again.".to_owned());
    header
}
