//! What every route has: a request id, limits, methods, content negotiation, and a problem for each error of the store.

use crate::api::prelude::*;

/// HTTP methods, known and unknown. Each path accepts some or none of them.
const METHODS: &str = r"
    GET POST PUT PATCH DELETE TRACE PROPFIND LOCK UNLOCK PURGE BREW get Post GETT X-Y_Z
";

#[tokio::test]
async fn every_path_says_which_methods_it_takes() {
    let service = Service::start();
    for (path, allow) in paths() {
        let options = service.call(&format!("OPTIONS {path}"), &[]).await;
        assert_eq!(
            (options.status, options.header("allow")),
            (204, &*allow),
            "{path}"
        );
        let methods = words(METHODS).filter(|method| !allow.split(", ").any(|it| it == *method));
        for method in methods {
            let answer = service.call(&format!("{method} {path}"), &[]).await;
            assert_eq!(answer.problem(), (405, "method-not-allowed"), "{path}");
            assert_eq!(answer.header("allow"), allow);
        }
        if !allow.contains("HEAD") {
            let head = service.call(&format!("HEAD {path}"), &[]).await;
            assert_eq!(head.status, 405, "{path}");
        }
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn head_is_get_without_the_body() {
    let service = Service::start();
    // The answers of these paths change between two requests, or have no length.
    let varies =
        |path: &str| ["/metrics", "/stats", "/samples", "/backup", "/events"].contains(&path);
    for operation in operations() {
        let path = operation.target("a");
        if operation.method != "GET" || varies(&path) {
            continue;
        }
        let head = service.call(&format!("HEAD {path}"), &[]).await;
        let get = service.get(&path).await;
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"));
        assert_eq!(head.header("content-length"), get.body.len().to_string());
        assert_eq!(head.body, "");
    }
}

#[tokio::test]
async fn every_answer_has_a_request_id_and_what_needs_a_key_is_never_kept() {
    let service = Service::start();
    let operations = operations();
    for (path, _) in paths() {
        let is_public = operations
            .iter()
            .all(|it| it.target("a") != path || it.method == "GET" && !it.answers("unauthorized"));
        for method in ["GET", "POST", "OPTIONS", "PATCH"] {
            let answer = service.peek(&format!("{method} {path}"), &[]).await;
            assert_ne!(answer.header("x-request-id"), "", "{method} {path}");
            let is_kept = answer.header("cache-control") != "no-store";
            let may_be_kept = is_public && (path != "/readyz" || method != "GET");
            assert_eq!(is_kept, may_be_kept, "{method} {path}");
        }
    }
    let missing = service.get("/locks/a/b/c").await;
    assert_eq!(missing.problem(), (404, "not-found"));
    assert_eq!(missing.header("cache-control"), "no-store");
}

#[tokio::test]
async fn a_path_that_ends_with_a_slash_is_told_so() {
    let service = Service::start();
    for path in ["/locks/a/", "/locks/a/renew/", "/healthz/"] {
        let missing = service.get(path).await.is_problem(404, "not-found");
        assert!(
            missing.body.contains("Leave the slash out"),
            "{}",
            missing.body
        );
    }
}

#[tokio::test]
async fn a_request_id_that_was_sent_comes_back() {
    let service = Service::start();
    let headers = [("x-request-id", "my-id.1")];
    let answer = service.call("GET /nowhere", &headers).await;
    assert_eq!(answer.header("x-request-id"), "my-id.1");
    assert_eq!(answer.problem(), (404, "not-found"));
    let answer = service.call("GET /", &[("x-request-id", "my id")]).await;
    assert_ne!(answer.header("x-request-id"), "my id");
}

#[tokio::test]
async fn nothing_is_done_for_a_request_that_accepts_none_of_the_answers() {
    let service = Service::start();
    for line in ["POST /locks/a", "GET /locks/a", "PUT /locks/a/renew"] {
        let headers = [WITH_TOKEN, &[("accept", "text/html")]].concat();
        let answer = service.call(line, &headers).await;
        assert_eq!(answer.problem(), (406, "not-acceptable"));
    }
    assert!(service.script.asked().is_empty());
    for path in ["/", "/healthz", "/readyz", "/openapi.json"] {
        let line = format!("GET {path}");
        let answer = service.call(&line, &[("accept", "text/html")]).await;
        assert_eq!(answer.status, 406, "{path}");
    }
    let headers = [("accept", "application/json")];
    let docs = service.call("GET /docs", &headers).await;
    assert_eq!(docs.status, 406);
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_what_is_too_large() {
    let service = Service::start();
    let limits = Config::default().http;
    let target = |len: usize| format!("/locks/{}", "a".repeat(len - "/locks/".len()));
    let answer = service.get(&target(limits.max_uri_bytes + 1)).await;
    assert_eq!(answer.problem(), (414, "uri-too-long"));
    let answer = service.get(&target(limits.max_uri_bytes)).await;
    assert_eq!(answer.problem(), (400, "invalid-request"));

    let overhead = "host: localhost\r\nx-long: \r\n".len();
    let long = |len: usize| "a".repeat(len - overhead);
    let fits = long(limits.max_header_bytes);
    let answer = service.call("GET /locks/a", &[("x-long", &fits)]).await;
    assert_eq!(answer.status, 200);
    let answer = service
        .call("GET /locks/a", &[("x-long", &(fits + "a"))])
        .await;
    assert_eq!(answer.problem(), (431, "headers-too-large"));

    let body = |len: usize| format!("{{{}}}", " ".repeat(len - 2));
    let answer = service
        .ask("POST /locks/a", JSON, body(limits.max_body_bytes))
        .await;
    assert_eq!(answer.status, 201);
    let answer = service
        .ask("POST /locks/a", JSON, body(limits.max_body_bytes + 1))
        .await;
    assert_eq!(answer.problem(), (413, "too-large"));
}

#[tokio::test]
async fn a_panic_is_a_500_and_not_the_end() {
    let service = Service::start();
    service.script.panics.set();
    let answer = service.get("/locks/a").await.is_problem(500, "internal");
    assert!(
        !answer.body.contains("the script says so"),
        "{}",
        answer.body
    );
    service.script.panics.lift();
    assert_eq!(service.get("/locks/a").await.status, 200);
}

#[tokio::test]
async fn a_base_path_is_in_front_of_everything() {
    let service = Service::configured(|it| it.http.base_path = "/latch/gate/".to_owned());
    for (path, _) in paths() {
        let line = format!("OPTIONS /latch/gate{path}");
        let options = service.call(&line, &[]).await;
        assert_eq!(options.status, 204, "{path}");
        assert_eq!(service.get(&path).await.status, 404, "{path}");
    }
    let granted = service.call("POST /latch/gate/locks/a", &[]).await;
    assert_eq!(granted.header("location"), "/latch/gate/locks/a");
    assert_eq!(granted.header("cache-control"), "no-store");
    let missing = service.get("/latch/gate/nowhere").await;
    assert_eq!(missing["type"], "/latch/gate/problems/not-found");
    let missing = service.get("/latch/gate/locks/a/b/c").await.is(404);
    assert_eq!(missing.header("cache-control"), "no-store");
    let document = service.get("/latch/gate/openapi.json").await.json();
    assert_eq!(document["servers"][0]["url"], "/latch/gate");
    let index = service.get("/latch/gate/").await.json();
    assert_eq!(index["docs"], "/latch/gate/docs");
    let initializer = service.get("/latch/gate/docs/swagger-initializer.js").await;
    assert!(initializer.body.contains("\"/latch/gate/openapi.json\""));
}

#[tokio::test]
async fn a_json_answer_ends_its_line() {
    let service = Service::start();
    for path in ["/", "/readyz", "/locks/a", "/nowhere", "/openapi.json"] {
        let body = service.get(path).await.body;
        assert!(body.ends_with("}\n"), "{path}: {body}");
    }
}

fn store_errors() -> Vec<(StoreError, u16, &'static str)> {
    let text = || "s3cret.internal:6379".to_owned();
    let unavailable = [
        Unavailability::Connect(text()),
        Unavailability::Refused(text()),
        Unavailability::OutOfMemory,
        Unavailability::Misconfigured(text()),
        Unavailability::Clock(text()),
        Unavailability::Disk(text()),
        Unavailability::DiskFull(text()),
        Unavailability::Withdrawn,
    ];
    let unknown = [
        Uncertainty::TimedOut,
        Uncertainty::ConnectionLost(text()),
        Uncertainty::UnexpectedReply(text()),
        Uncertainty::Disk(text()),
    ];
    let unavailable = unavailable.map(|it| (it.into(), 503, "store-unavailable"));
    let unknown = unknown.map(|it| (it.into(), 504, "outcome-unknown"));
    let others = [
        (Unavailability::Overloaded.into(), 503, "overloaded"),
        (Unavailability::Closing.into(), 503, "draining"),
        (foreign_data(), 500, "foreign-data"),
        (StoreError::FenceExhausted, 503, "fence-exhausted"),
    ];
    unavailable
        .into_iter()
        .chain(unknown)
        .chain(others)
        .collect()
}

fn foreign_data() -> StoreError {
    StoreError::ForeignData {
        key: "lg:{a}:lock".to_owned(),
        found: "a list".into(),
    }
}

#[tokio::test]
async fn every_store_error_has_its_code_on_every_route_and_keeps_its_cause_to_itself() {
    for (error, status, code) in store_errors() {
        let service = Service::start();
        service.script.acquire.fail(error.clone());
        service.script.renew.fail(error.clone());
        service.script.release.fail(error.clone());
        service.script.inspect.fail(error.clone());
        service.script.list.fail(error.clone());
        let says_nothing_happened = |answer: &ApiResponse, status: u16| {
            assert!(!answer.body.contains("s3cret"), "{}", answer.body);
            let says = answer.body.contains("Nothing happened");
            assert_eq!(
                says,
                status == 503 && !answer.body.contains("2^53"),
                "{}",
                answer.body
            );
        };
        for line in ["POST /locks/a", "PUT /locks/a/renew", "DELETE /locks/a"] {
            let answer = service.call(line, WITH_TOKEN).await;
            assert_eq!(answer.problem(), (status, code), "{error}");
            says_nothing_happened(&answer, status);
        }
        // A request that only reads has no unknown outcome: the error is told as an unavailable store.
        let (status, code) = match &error {
            StoreError::Indeterminate(_) => (503, "store-unavailable"),
            _ => (status, code),
        };
        for path in ["/locks/a", "/locks"] {
            let answer = service.get(path).await;
            assert_eq!(answer.problem(), (status, code), "{path} {error}");
            says_nothing_happened(&answer, status);
        }
    }
}

#[tokio::test]
async fn foreign_data_is_named() {
    let service = Service::start();
    service.script.inspect.fail(foreign_data());
    let answer = service.get("/locks/a").await;
    let detail = answer["detail"].as_str().unwrap();
    assert_has(detail, "\"lg:{a}:lock\"");
    assert_has(detail, "a list");
}

#[tokio::test]
async fn a_key_that_was_used_before_is_409() {
    let service = Service::start();
    for (refused, code) in [
        (Acquisition::IdempotencyMismatch, "idempotency-mismatch"),
        (Acquisition::IdempotencyExpired, "idempotency-expired"),
    ] {
        service.script.acquire.ok(refused);
        assert_eq!(service.acquire("").await.problem(), (409, code));
    }
}
