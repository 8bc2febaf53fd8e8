//! The OpenAPI document says what the gateway does.

use std::collections::BTreeSet;

use latchgate::{
    engine::LossReason,
    http::{ProblemCode, openapi, problems_markdown},
};
use serde_json::Value;

use super::service::Service;

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

fn describes(response: &Value, code: &str) -> bool {
    let description = response["description"].as_str().unwrap();
    description.contains(&format!("`{code}`: "))
}

#[test]
fn every_operation_says_what_the_edge_may_answer() {
    let document = document();
    for (route, operation) in operations(&document) {
        let answers = |status: &str, code: &str| {
            let response = &operation["responses"][status];
            response.is_object() && describes(response, code)
        };
        let is_probe = route.ends_with('z');
        assert_eq!(answers("421", "wrong-host"), !is_probe, "{route}");
        assert_eq!(answers("503", "overloaded"), !is_probe, "{route}");
        assert!(answers("400", "invalid-request"), "{route}");
        let streams = operation["responses"]["200"]["content"]["text/event-stream"].is_object();
        let takes_session = operation["responses"]["401"].is_object() && route != "get /session";
        let guarded = streams || takes_session || !route.starts_with("get ");
        assert_eq!(answers("403", "origin-refused"), guarded, "{route}");
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
fn it_lists_every_route() {
    let document = document();
    let listed = operations(&document)
        .into_iter()
        .map(|(route, _)| route)
        .collect::<Vec<_>>();
    assert_eq!(
        listed,
        [
            "get /",
            "get /backup",
            "get /dashboard",
            "get /docs",
            "get /events",
            "get /healthz",
            "get /locks",
            "delete /locks/{name}",
            "get /locks/{name}",
            "post /locks/{name}",
            "post /locks/{name}/break",
            "post /locks/{name}/hold",
            "post /locks/{name}/release",
            "put /locks/{name}/renew",
            "get /metrics",
            "get /openapi.json",
            "get /problems/{code}",
            "get /readyz",
            "delete /session",
            "get /session",
            "post /session",
            "get /stats",
        ]
        .map(str::to_owned)
    );
}

#[test]
fn every_answer_has_its_headers() {
    let document = document();
    for (route, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let headers = &response["headers"];
            assert!(headers["X-Request-Id"].is_object(), "{route} {status}");
            let private = ["/locks", "/events", "/session", "/stats", "/backup"]
                .iter()
                .any(|path| route.contains(path));
            let revalidated = route == "get /dashboard" && status == "200";
            assert_eq!(
                headers["Cache-Control"].is_object(),
                private || revalidated,
                "{route} {status}"
            );
            assert_eq!(
                headers["Allow"].is_object(),
                status == "405",
                "{route} {status}"
            );
            assert_eq!(
                headers["Retry-After"].is_object(),
                matches!(status.as_str(), "423" | "429") || describes(response, "overloaded"),
                "{route} {status}"
            );
            assert_eq!(
                headers["WWW-Authenticate"].is_object(),
                status == "401",
                "{route} {status}"
            );
            let located = route == "post /locks/{name}" && status.starts_with('2');
            assert_eq!(headers["Location"].is_object(), located, "{route} {status}");
        }
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
fn every_response_names_codes_of_its_own_status() {
    let document = document();
    let mut named = BTreeSet::new();
    for (route, operation) in operations(&document) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let schema = &response["content"]["application/problem+json"]["schema"];
            let Some(codes) = schema["allOf"][1]["properties"]["code"]["enum"].as_array() else {
                continue;
            };
            for code in codes {
                let code = ProblemCode::from_slug(code.as_str().unwrap()).unwrap();
                assert_eq!(code.status().as_str(), status, "{route}");
                named.insert(code);
            }
        }
    }
    let all = ProblemCode::ALL.iter().copied();
    assert_eq!(named, all.collect(), "every code is answered somewhere");
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
