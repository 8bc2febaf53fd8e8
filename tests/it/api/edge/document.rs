//! The OpenAPI document describes what the gateway does, and the committed documents are the generated ones.

use std::io::Read as _;

use flate2::read::GzDecoder;
use latchgate::{engine::LossReason, http::problems_markdown};

use crate::{api::prelude::*, support::golden::assert_golden};

fn document() -> Value {
    serde_json::to_value(openapi()).unwrap()
}

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let mut operations = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            operations.push((format!("{method} {path}"), operation));
        }
    }
    operations
}

/// The target of a reference in the document, or the value itself if it is no reference.
fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let Some(target) = value["$ref"].as_str() else {
        return value;
    };
    let found = document.pointer(target.strip_prefix('#').unwrap());
    found.unwrap_or_else(|| panic!("{target} names nothing"))
}

/// The problem codes that the document lists for an operation.
fn codes(operation: &Value) -> BTreeSet<ProblemCode> {
    let listed = operation["x-problem-codes"].as_array().unwrap().iter();
    let codes = listed.map(|code| ProblemCode::from_slug(code.as_str().unwrap()).unwrap());
    let codes: Vec<_> = codes.collect();
    let distinct = codes.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(distinct.len(), codes.len(), "none is listed twice");
    distinct
}

/// Visits every value in the document with its path.
fn walk(value: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, value);
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                walk(value, &format!("{path}/{name}"), visit);
            }
        }
        Value::Array(items) => {
            for (at, value) in items.iter().enumerate() {
                walk(value, &format!("{path}/{at}"), visit);
            }
        }
        _ => {}
    }
}

/// The page `/docs` fills examples in: its visitors would all send the same key, and be answered one lease.
#[test]
fn no_caller_is_given_the_idempotency_key_of_another() {
    let document = document();
    let key = &document["components"]["parameters"]["IdempotencyKey"];
    assert_eq!(key["name"], "Idempotency-Key");
    walk(key, "", &mut |path, _| {
        let is_filled_in = path.contains("example") || path.contains("default");
        assert!(!is_filled_in, "{path}");
    });
}

/// The page `/docs` sends what it has filled in. A wait or a filter that the user did not choose would be sent, too.
#[test]
fn only_required_parameters_have_an_example_that_is_filled_in() {
    let document = document();
    for (route, operation) in operations(&document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let parameter = resolved(&document, parameter);
            let (name, schema) = (&parameter["name"], &parameter["schema"]);
            let values = [
                &parameter["example"],
                &schema["example"],
                &schema["default"],
            ];
            let is_filled_in = values.iter().any(|value| !value.is_null());
            assert!(
                !is_filled_in || parameter["required"] == true,
                "{route}: {name}"
            );
        }
    }
}

#[test]
fn every_operation_says_what_the_edge_may_answer() {
    let document = document();
    for (route, operation) in operations(&document) {
        let codes = codes(operation);
        let is_probe = route.ends_with('z');
        let answers = |code| codes.contains(&code);
        assert_eq!(answers(ProblemCode::WrongHost), !is_probe, "{route}");
        assert_eq!(answers(ProblemCode::Overloaded), !is_probe, "{route}");
        for code in [
            ProblemCode::InvalidRequest,
            ProblemCode::MethodNotAllowed,
            ProblemCode::UriTooLong,
            ProblemCode::HeadersTooLarge,
            ProblemCode::Internal,
        ] {
            assert!(answers(code), "{route} {code:?}");
        }
        let streams = operation["responses"]["200"]["content"]["text/event-stream"].is_object();
        let takes_session = operation["responses"]["401"].is_object() && route != "get /session";
        let guarded = streams || takes_session || !route.starts_with("get ");
        assert_eq!(answers(ProblemCode::OriginRefused), guarded, "{route}");
    }
}

#[test]
fn every_reason_for_which_a_hold_is_lost_is_explained() {
    let document = document();
    let told = &document["paths"]["/locks/{name}/hold"]["post"]["description"];
    for reason in LossReason::ALL {
        let reason = format!("`{}`: ", reason.as_str());
        assert!(told.as_str().unwrap().contains(&reason), "{reason}");
    }
}

#[test]
fn it_is_openapi_3_1() {
    assert_eq!(document()["openapi"], "3.1.0");
}

#[test]
fn every_answer_has_its_headers() {
    let document = document();
    for (route, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let is_shared = response["$ref"].is_string();
            let headers = &resolved(&document, response)["headers"];
            let has = |name: &str| resolved(&document, &headers[name]).is_object();
            assert!(has("X-Request-Id"), "{route} {status}");
            let revalidated = ["get /dashboard", "get /openapi.json"].contains(&&*route)
                && matches!(status.as_str(), "200" | "304");
            assert_eq!(has("Cache-Control"), revalidated, "{route} {status}");
            assert_eq!(has("Allow"), status == "405", "{route} {status}");
            let overloaded = is_shared && status == "503";
            assert_eq!(
                has("Retry-After"),
                matches!(status.as_str(), "423" | "429") || overloaded,
                "{route} {status}"
            );
            assert_eq!(has("WWW-Authenticate"), status == "401", "{route} {status}");
            let located = route == "post /locks/{name}" && status.starts_with('2');
            assert_eq!(has("Location"), located, "{route} {status}");
        }
    }
    let description = document["info"]["description"].as_str().unwrap();
    let kept = description.lines().find(|line| line.contains("no-store"));
    let kept = kept.unwrap();
    for path in words("`/locks` `/events` `/session` `/stats` `/backup`") {
        assert!(kept.contains(path), "{path}: {kept}");
    }
}

#[test]
fn every_operation_has_words_for_people() {
    let document = document();
    let mut ids = BTreeSet::new();
    for (route, operation) in operations(&document) {
        for field in ["summary", "description", "operationId"] {
            let text = operation[field].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{route} has no {field}");
        }
        assert!(ids.insert(operation["operationId"].to_string()), "{route}");
    }
}

#[test]
fn every_code_that_an_operation_lists_has_its_response_and_the_other_way_round() {
    let document = document();
    let mut named = BTreeSet::new();
    for (route, operation) in operations(&document) {
        let codes = codes(operation);
        let responses = operation["responses"].as_object().unwrap();
        for code in &codes {
            let response = resolved(&document, &responses[code.status().as_str()]);
            let told = response["description"].as_str().unwrap();
            let slug = format!("`{}`: ", code.as_str());
            assert!(told.contains(&slug), "{route}: {slug} is not explained");
        }
        for (status, response) in responses {
            let is_problem = response["$ref"].is_string();
            let listed = codes.iter().any(|code| code.status().as_str() == status);
            assert_eq!(listed, is_problem, "{route} {status}");
        }
        named.extend(codes);
    }
    let all = ProblemCode::ALL.iter().copied();
    assert_eq!(named, all.collect(), "every code is answered somewhere");
}

#[test]
fn all_problems_are_one_schema_in_one_response_for_each_status() {
    let document = document();
    let shared = document["components"]["responses"].as_object().unwrap();
    let statuses = ProblemCode::ALL.iter().map(|code| code.status());
    assert_eq!(shared.len(), statuses.collect::<BTreeSet<_>>().len());
    for (name, response) in shared {
        let schema = &response["content"]["application/problem+json"]["schema"];
        assert_eq!(
            *schema,
            json!({"$ref": "#/components/schemas/Problem"}),
            "{name}"
        );
    }
    let mut inline = Vec::new();
    walk(&document["paths"], "", &mut |path, _| {
        if path.ends_with("/application/problem+json") {
            inline.push(path.to_owned());
        }
    });
    assert_eq!(inline, [""; 0]);
}

/// Otherwise two operations would describe the same component differently, and the last description would win.
#[test]
fn a_shared_parameter_is_listed_where_it_is_taken() {
    let document = document();
    let mut users = BTreeMap::<_, usize>::new();
    for (route, operation) in operations(&document) {
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let own = resolved(&document, parameter);
            assert!(own["schema"].is_object(), "{route}: {own}");
            if parameter["$ref"].is_string() {
                *users.entry(own["name"].as_str().unwrap()).or_default() += 1;
            }
        }
    }
    let expected = [("Idempotency-Key", 3), ("Prefer", 3), ("name", 10)];
    assert_eq!(users, BTreeMap::from(expected));
}

#[test]
fn every_reference_names_something() {
    let document = document();
    let mut seen = 0;
    walk(&document, "", &mut |_, value| {
        if value["$ref"].is_string() {
            assert!(!resolved(&document, value).is_null());
            seen += 1;
        }
    });
    assert!(seen > 200, "{seen}");
}

/// `openapi-typescript` makes a field with a default a required field.
#[test]
fn no_default_makes_a_field_required() {
    walk(&document(), "", &mut |path, value| {
        assert!(value["default"].is_null(), "{path}");
    });
}

#[tokio::test]
async fn a_body_that_may_be_left_out_is_marked_so() {
    let service = Service::start();
    for operation in crate::support::operations::operations() {
        if let Some(is_required) = operation.body_is_required() {
            let line = operation.line("a");
            let answer = service.peek(&line, WITH_TOKEN).await;
            assert_eq!(answer.status == 400, is_required, "{line}: {}", answer.body);
        }
    }
}

#[test]
fn the_list_of_codes_is_the_same_everywhere() {
    let document = document();
    let codes = ProblemCode::ALL
        .iter()
        .map(|code| code.as_str())
        .collect::<Vec<_>>();
    let schema = &document["components"]["schemas"]["ProblemCode"]["enum"];
    assert_eq!(*schema, Value::from(codes.clone()));
    let chapter = problems_markdown();
    let headings = chapter
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect::<BTreeSet<_>>();
    assert_eq!(headings, codes.into_iter().collect());
}

#[tokio::test]
async fn the_served_document_is_the_generated_one() {
    let served = Service::start().get("/openapi.json").await;
    assert_eq!(served.header("content-type"), "application/json");
    assert_eq!(served.json(), document());
}

#[tokio::test]
async fn the_document_is_small_and_sent_once() {
    let service = Service::start();
    let ask = async |headers: &[(&str, &str)]| {
        let answer = service.open("GET /openapi.json", headers, "").await;
        let (head, body) = answer.into_parts();
        (head, body.collect().await.unwrap().to_bytes())
    };
    let (plain, text) = ask(&[]).await;
    // The document must stay small with a base path of any length. Shared locks, groups, release requests, checks and the history are
    // a fifth of it; incidents and the exchange of ID tokens are a twentieth.
    assert!(text.len() < 172_000, "{} bytes", text.len());
    assert!(!plain.headers.contains_key("content-encoding"));
    let (small, bytes) = ask(&[("accept-encoding", "gzip, br")]).await;
    assert_eq!(small.headers["content-encoding"], "gzip");
    assert!(bytes.len() < 34_500, "{} bytes", bytes.len());
    let mut unpacked = Vec::new();
    GzDecoder::new(&bytes[..])
        .read_to_end(&mut unpacked)
        .unwrap();
    assert_eq!(unpacked, text);
    // Each encoding has its own `ETag`.
    assert_ne!(plain.headers["etag"], small.headers["etag"]);
    for (head, coding) in [(&plain, "identity"), (&small, "gzip")] {
        assert_eq!(head.headers["cache-control"], "no-cache");
        assert_eq!(head.headers["vary"], "Accept-Encoding");
        let tag = head.headers["etag"].to_str().unwrap();
        let (again, nothing) = ask(&[("accept-encoding", coding), ("if-none-match", tag)]).await;
        assert_eq!((again.status.as_u16(), nothing.len()), (304, 0));
        assert_eq!(again.headers["etag"], tag);
        assert!(again.headers.contains_key("x-request-id"));
    }
    let (changed, _) = ask(&[("if-none-match", "\"another\"")]).await;
    assert_eq!(changed.status, 200);
}

#[tokio::test]
async fn a_gateway_with_other_limits_has_a_document_of_another_name() {
    let config = with(Config::default(), |it| {
        it.limits.default_ttl_ms = Millis(5_000);
    });
    let other = Service::with(config).get("/openapi.json").await;
    let usual = Service::start().get("/openapi.json").await;
    assert_ne!(other.header("etag"), usual.header("etag"));
    let ttl = &other["components"]["schemas"]["AcquireBody"]["properties"]["ttl_ms"];
    let told = ttl["description"].as_str().unwrap();
    assert!(told.ends_with("Left out: 5000."), "{told}");
}

#[test]
fn the_committed_openapi_document_is_the_generated_one() {
    let mut document = serde_json::to_string_pretty(&openapi()).unwrap();
    document.push('\n');
    assert_golden("openapi/latchgate.json", &document);
}

#[test]
fn the_committed_chapter_on_problems_is_the_generated_one() {
    assert_golden("docs/problems.md", &problems_markdown());
}
