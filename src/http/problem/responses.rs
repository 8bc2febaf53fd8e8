//! Problems in the OpenAPI document.

use std::collections::BTreeMap;

use serde_json::json;
use utoipa::openapi::{
    ContentBuilder, Header, ObjectBuilder, Ref, RefOr, Response, ResponseBuilder,
    example::{Example, ExampleBuilder},
    schema::{AllOfBuilder, Type},
};

use super::ProblemCode;

/// The responses of an operation that can answer these problems: one for each status, which names
/// the codes it can have.
pub(in crate::http) fn problem_responses(
    codes: &[ProblemCode],
) -> BTreeMap<String, RefOr<Response>> {
    let mut by_status = BTreeMap::<_, Vec<_>>::new();
    for &code in codes {
        by_status.entry(code.status()).or_default().push(code);
    }
    by_status
        .into_iter()
        .map(|(status, codes)| (status.as_str().to_owned(), RefOr::T(response(&codes))))
        .collect()
}

fn response(codes: &[ProblemCode]) -> Response {
    let lines = codes
        .iter()
        .map(|code| format!("`{}`: {}", code.as_str(), code.meaning()))
        .collect::<Vec<_>>();
    let slugs = codes.iter().map(|code| code.as_str());
    let mut only = ObjectBuilder::new().property(
        "code",
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(slugs)),
    );
    if let [code] = codes {
        for field in own_fields(*code) {
            only = only.required(*field);
        }
    }
    let schema = AllOfBuilder::new()
        .item(Ref::from_schema_name("Problem"))
        .item(only);
    let mut content = ContentBuilder::new().schema(Some(schema));
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

/// A header that is a text.
pub(in crate::http) fn text_header(description: &str) -> Header {
    let mut header = Header::new(ObjectBuilder::new().schema_type(Type::String));
    header.description = Some(description.to_owned());
    header
}

/// The fields that every problem with this code has, besides those that all problems have.
fn own_fields(code: ProblemCode) -> &'static [&'static str] {
    match code {
        ProblemCode::InvalidRequest => &["errors"],
        ProblemCode::Locked => &[
            "holders",
            "holder_count",
            "waited_ms",
            "waiters",
            "retry_after_ms",
        ],
        ProblemCode::RateLimited
        | ProblemCode::TooManyWaiters
        | ProblemCode::TooManyLeases
        | ProblemCode::Overloaded => &["retry_after_ms"],
        _ => &[],
    }
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
            "`ttl_ms` is 50; allowed are 100 to 86400000 milliseconds.",
            json!({"errors": [{
                "field": "ttl_ms",
                "reason": "is 50; allowed are 100 to 86400000 milliseconds",
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
