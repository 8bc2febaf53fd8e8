//! The OpenAPI document: the same contract that people read, for machines.

use std::collections::{BTreeMap, BTreeSet};

use utoipa::openapi::{
    InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response, Server,
    path::{Operation as Description, Parameter},
    security::{
        ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
    },
    tag::TagBuilder,
};

use crate::config::LimitsConfig;

use super::{
    edge::{Class, Operation, Schemas},
    extract::{RequestBody, SESSION_COOKIE, body_schema},
    file::File,
    json_response::json,
    locks::{AcquireBody, AcquireGroupBody, LockOfGroup, RenewBody},
    problem::{ProblemCode as Code, ProblemDocument, add_problems, shared_responses, text_header},
    state::BasePath,
};

/// Parameters that are the same in all operations, with their names in the document.
const SHARED_PARAMETERS: [(&str, &str); 3] = [
    ("name", "LockName"),
    ("Idempotency-Key", "IdempotencyKey"),
    ("Prefer", "Prefer"),
];

/// Name and text in the document of the header that all answers have. The header `Cache-Control` of answers
/// about locks is only mentioned in the description of the API, because no generator uses it.
const REQUEST_ID: (&str, &str) = (
    "RequestId",
    "The name of this request in the log of the gateway.",
);

/// Name in the OpenAPI document of the authentication by API key.
const BEARER: &str = "bearer";
/// Name in the OpenAPI document of the authentication by session cookie.
const SESSION: &str = "session";
const SESSION_DESCRIPTION: &str = "The session that a page of the gateway gets from `POST \
    /session`. Over HTTPS the cookie is called `__Host-latchgate-session`, or \
    `__Secure-latchgate-session` below a base path; if the request has one of these, \
    `latchgate-session` is ignored.";
const BEARER_DESCRIPTION: &str = "An API key, `lgk_..`, as the operator of the gateway gave it to \
    you. A gateway without keys needs none and ignores it.";

/// The document of a gateway with the default configuration, over its operations.
pub(super) fn document(operations: &[Operation]) -> OpenApi {
    let mut document = preface();
    let components = document.components.get_or_insert_default();
    let mut schemas = Schemas::new();
    for operation in operations {
        let Some(describe) = operation.describe else {
            continue;
        };
        let (methods, mut description) = describe(&mut schemas);
        complete(&mut description, operation);
        for parameter in description.parameters.iter_mut().flatten() {
            share(parameter, &mut components.parameters);
        }
        document
            .paths
            .add_path_operation(&operation.path, methods, description);
    }
    components.schemas.extend(schemas);
    apply(&mut document, &LimitsConfig::default());
    document
}

/// Moves a parameter that several operations have to the shared components.
fn share(parameter: &mut RefOr<Parameter>, shared: &mut BTreeMap<String, RefOr<Parameter>>) {
    let RefOr::T(own) = parameter else { return };
    let listed = SHARED_PARAMETERS.iter().find(|(name, _)| *name == own.name);
    let Some((_, component)) = listed else { return };
    let reference = Ref::new(format!("#/components/parameters/{component}"));
    let own = std::mem::replace(parameter, RefOr::Ref(reference));
    shared.insert((*component).to_owned(), own);
}

/// The OpenAPI document without its routes: its title, description, tags and ways of authentication.
fn preface() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Latchgate")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(include_str!("openapi.md")))
        .license(Some(
            LicenseBuilder::new()
                .name("Apache-2.0")
                .identifier(Some("Apache-2.0"))
                .build(),
        ));
    let tags = [
        (
            "locks",
            "Acquire, renew, release, inspect, list and break locks.",
        ),
        ("session", "Sessions for pages of the gateway."),
        ("health", "Health, metrics and backups, for operators."),
        (
            "documentation",
            "The API: its description, and its problems.",
        ),
    ]
    .map(|(name, description)| {
        TagBuilder::new()
            .name(name)
            .description(Some(description))
            .build()
    });
    let mut document = OpenApiBuilder::new()
        .info(info.build())
        .tags(Some(tags))
        .build();
    let mut schemas = Vec::new();
    <ProblemDocument<'_> as utoipa::ToSchema>::schemas(&mut schemas);
    let problem = <ProblemDocument<'_> as utoipa::PartialSchema>::schema();
    let components = document.components.get_or_insert_default();
    components.schemas.extend(schemas);
    components.schemas.insert("Problem".to_owned(), problem);
    let (name, text) = REQUEST_ID;
    let header = text_header(text).into();
    components.headers.insert(name.to_owned(), header);
    for (name, mut response) in shared_responses() {
        add_request_id(&mut response);
        components.responses.insert(name, response.into());
    }
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(BEARER_DESCRIPTION))
        .build();
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer));
    let session = ApiKeyValue::with_description(SESSION_COOKIE, SESSION_DESCRIPTION);
    components.add_security_scheme(SESSION, SecurityScheme::ApiKey(ApiKey::Cookie(session)));
    document
}

/// Renders the document of one gateway, with its base path and its limits.
pub(super) fn rendered(mut document: OpenApi, base_path: &BasePath, limits: &LimitsConfig) -> File {
    if !base_path.as_str().is_empty() {
        document.servers = Some(vec![Server::new(base_path.as_str())]);
    }
    apply(&mut document, limits);
    File::new("application/json", json(&document))
}

/// Writes the limits of one gateway into the schemas of the bodies in the document.
fn apply(document: &mut OpenApi, limits: &LimitsConfig) {
    let components = document.components.get_or_insert_default();
    for (body, schema) in [
        (AcquireBody::ABOUT, body_schema::<AcquireBody>(limits)),
        (
            AcquireGroupBody::ABOUT,
            body_schema::<AcquireGroupBody>(limits),
        ),
        (LockOfGroup::ABOUT, body_schema::<LockOfGroup>(limits)),
        (RenewBody::ABOUT, body_schema::<RenewBody>(limits)),
    ] {
        components.schemas.insert(body.name.to_owned(), schema);
    }
}

/// Adds to the description of an operation the problems and headers that the table of routes and the edge
/// know.
fn complete(description: &mut Description, operation: &Operation) {
    if operation.body_is_optional
        && let Some(RefOr::T(body)) = &mut description.request_body
    {
        body.required = Some(Required::False);
    }
    let mut codes: BTreeSet<_> = operation.problems.concat().into_iter().collect();
    codes.extend([
        Code::InvalidRequest,
        Code::MethodNotAllowed,
        Code::UriTooLong,
        Code::HeadersTooLarge,
        Code::Internal,
    ]);
    if operation.class != Class::Probes {
        codes.extend([Code::WrongHost, Code::Overloaded]);
    }
    // An operation that serves a file is never answered 406: the file is sent even if the request does not
    // accept its media type.
    let is_of_form = |response: &Response| {
        let mut forms = response.content.keys();
        forms.any(|form| form != "application/octet-stream")
    };
    let own = &mut description.responses.responses;
    if own.iter().any(|(status, response)| {
        matches!(response, RefOr::T(response) if status.starts_with('2') && is_of_form(response))
    }) {
        codes.insert(Code::NotAcceptable);
    }
    if codes.contains(&Code::Unauthorized) {
        let key = SecurityRequirement::new::<_, [&str; 0], _>(BEARER, []);
        let session = SecurityRequirement::new::<_, [&str; 0], _>(SESSION, []);
        description.security = Some(vec![key, session, SecurityRequirement::default()]);
    }
    for response in own.values_mut() {
        if let RefOr::T(response) = response {
            add_request_id(response);
        }
    }
    add_problems(description, codes);
}

fn add_request_id(response: &mut Response) {
    let (name, _) = REQUEST_ID;
    let shared = Ref::new(format!("#/components/headers/{name}"));
    let headers = &mut response.headers;
    headers.insert("X-Request-Id".to_owned(), RefOr::Ref(shared));
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use crate::config::Millis;

    use super::*;

    #[test]
    fn overwrites_what_the_document_says() {
        let mut document = crate::http::openapi();
        let default = document.clone();
        apply(&mut document, &LimitsConfig::default());
        assert!(
            document == default,
            "the default limits are those of the document"
        );
        let limits = LimitsConfig {
            default_ttl_ms: Millis(5_000),
            min_ttl_ms: Millis(1_000),
            max_ttl_ms: Millis(60_000),
            max_hold_limit_ms: Millis(90_000),
            max_wait_ms: Millis(25_000),
            max_holders: 20,
            ..LimitsConfig::default()
        };
        apply(&mut document, &limits);
        let document = serde_json::to_value(document).unwrap();
        let bounds = |schema: &str, field: &str| {
            let field = &document["components"]["schemas"][schema]["properties"][field];
            [&field["minimum"], &field["maximum"]].map(Value::as_u64)
        };
        for schema in ["AcquireBody", "AcquireGroupBody"] {
            assert_eq!(bounds(schema, "ttl_ms"), [Some(1_000), Some(60_000)]);
            let ttl = &document["components"]["schemas"][schema]["properties"]["ttl_ms"];
            let told = ttl["description"].as_str().unwrap();
            assert!(told.ends_with("Left out: 5000."), "{told}");
            assert_eq!(bounds(schema, "wait_ms"), [Some(0), Some(25_000)]);
            assert_eq!(bounds(schema, "max_hold_ms"), [Some(100), Some(90_000)]);
            assert_eq!(bounds(schema, "limit"), [Some(1), Some(20)]);
        }
        assert_eq!(bounds("LockOfGroup", "limit"), [Some(1), Some(20)]);
        assert_eq!(bounds("RenewBody", "ttl_ms"), [Some(1_000), Some(60_000)]);
    }
}
