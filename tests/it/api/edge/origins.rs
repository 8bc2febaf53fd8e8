//! What web pages may do, and which hosts the gateway answers for, tested over a socket as a browser or an attacker
//! would.

use crate::api::prelude::*;

/// The head of an answer, in lower case.
struct Head(String);

// === impl Head ===

impl Head {
    fn status(&self) -> &str {
        self.0.split(' ').nth(1).unwrap()
    }

    fn values(&self, name: &str) -> Vec<&str> {
        let prefix = format!("{name}: ");
        let lines = self.0.lines();
        lines
            .filter_map(|line| line.strip_prefix(&prefix))
            .collect()
    }
}

async fn ask(service: &Service, line: &str, headers: &[&str]) -> Head {
    let headers = [&["Host: localhost:7420"], headers].concat();
    let answer = whole(service, &format!("{line} HTTP/1.1"), &headers).await;
    Head(answer.split("\r\n\r\n").next().unwrap().to_lowercase())
}

/// Sends a request with this line and these headers. Answers the whole answer as text.
async fn whole(service: &Service, line: &str, headers: &[&str]) -> String {
    let headers: Vec<_> = headers.iter().map(|it| format!("{it}\r\n")).collect();
    let request = format!("{line}\r\n{}\r\n", headers.concat());
    answer(&mut service.sent(&request).await).await
}

/// A gateway whose `allowed_origins` lists two origins.
fn listing() -> Service {
    let mut config = Config::default();
    let listed = ["https://ci.example.com", "http://localhost:3000"];
    config.http.allowed_origins = listed.map(|origin| origin.parse().unwrap()).into();
    Service::with(config)
}

/// The request lines of all operations and of these others.
fn lines_and<const N: usize>(others: [&str; N]) -> Vec<String> {
    let lines = operations().into_iter().map(|it| it.line("a"));
    lines.chain(others.map(str::to_owned)).collect()
}

/// The request lines of the operations that pages of other origins must not call.
fn guarded() -> Vec<String> {
    let guarded = operations().into_iter().filter(Operation::is_guarded);
    let lines = guarded.map(|it| it.line("a"));
    lines.chain(["BREW /locks/a".to_owned()]).collect()
}

#[test]
fn the_tables_have_what_is_known_to_be_guarded() {
    let guarded = guarded();
    for line in [
        "POST /locks/a",
        "POST /locks/a/break",
        "POST /locks/a/hold",
        "POST /locks/a/release",
        "PUT /locks/a/renew",
        "DELETE /locks/a",
        "POST /locks",
        "PUT /locks?names=a,b",
        "DELETE /locks?names=a,b",
        "GET /events",
    ] {
        assert!(guarded.iter().any(|it| it == line), "{line}: {guarded:?}");
    }
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing_and_keeps_no_connection() {
    let service = listing();
    let guarded = guarded();
    for headers in [
        &["Origin: https://evil.example"][..],
        &["Origin: null"],
        &["Origin:"],
        &["Origin: http://localhost"],
        &["Origin: http://localhost:3001"],
        &["Origin: https://localhost:3000"],
        &["Origin: http://127.0.0.1:7420"],
        &["Origin: https://ci.example.com:8443"],
        &["Origin: http://ci.example.com"],
        &["Origin: https://ci.example.com.evil.example"],
        &["Origin: https://evil-ci.example.com"],
        &["Origin: https://ci.example.com@evil.example"],
        &["Origin: http://localhost:7420@evil.example"],
        &["Origin: http://localhost:7420/"],
        &["Origin: https://ci.example.com/"],
        &["Origin: https://ci.example.com, https://evil.example"],
        &["Origin: chrome-extension://abcdefgh"],
        &["Origin: file://"],
        &["Origin: *"],
        &["Origin: http://localhost.evil.example"],
        &["Sec-Fetch-Site:"],
        &[
            "Origin: https://ci.example.com",
            "Origin: https://ci.example.com",
        ],
        &["Sec-Fetch-Site: cross-site"],
        &["Sec-Fetch-Site: same-site"],
        &["Sec-Fetch-Site: something-new"],
        &["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"],
        &["Origin: http://localhost:7420", "Sec-Fetch-Site: same-site"],
        &[
            "Origin: https://evil.example",
            "Sec-Fetch-Site: same-origin",
        ],
    ] {
        for line in &guarded {
            let head = ask(&service, line, headers).await;
            assert_eq!(head.status(), "403", "{line} {headers:?}");
            assert!(head.values("access-control-allow-origin").is_empty());
        }
    }
    let foreign = [("sec-fetch-site", "cross-site")];
    service.call("HEAD /events", &foreign).await.is(403);
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn a_page_of_the_gateway_one_that_is_listed_and_what_is_no_browser_may() {
    let service = listing();
    for headers in [
        &[][..],
        &["Origin: http://localhost:7420"],
        &[
            "Origin: HTTP://LOCALHOST:7420",
            "Sec-Fetch-Site: same-origin",
        ],
        // The origin that a page has behind a proxy that ends TLS on the same port.
        &["Origin: https://localhost:7420"],
        &["Sec-Fetch-Site: same-origin"],
        &["Sec-Fetch-Site: none"],
        &[
            "Origin: https://ci.example.com",
            "Sec-Fetch-Site: cross-site",
        ],
        &["Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"],
        &["Origin: https://CI.example.com:443"],
    ] {
        let head = ask(&service, "POST /locks/a", headers).await;
        assert_eq!(head.status(), "201", "{headers:?}");
        let head = ask(&service, "GET /events", headers).await;
        assert_eq!(head.status(), "200", "{headers:?}");
    }
}

#[tokio::test]
async fn without_a_list_no_page_of_elsewhere_may_and_none_is_told_anything() {
    let service = Service::start();
    let foreign = ["Origin: https://ci.example.com"];
    let head = ask(&service, "POST /locks/a", &foreign).await;
    assert_eq!(head.status(), "403");
    for line in ["GET /locks/a", "OPTIONS /locks/a", "GET /nope"] {
        let head = ask(&service, line, &foreign).await;
        assert!(!head.0.contains("access-control-"), "{}", head.0);
    }
}

#[tokio::test]
async fn a_listed_page_reads_every_answer_and_others_none() {
    let service = listing();
    let others = ["GET /nope", "BREW /locks/a", "GET /docs/index.css"];
    for line in &lines_and(others) {
        let listed = ask(&service, line, &["Origin: https://ci.example.com"]).await;
        let allowed = listed.values("access-control-allow-origin");
        assert_eq!(allowed, ["https://ci.example.com"], "{line}");
        let exposed = listed.values("access-control-expose-headers");
        let readable = "etag, latchgate-warning, location, preference-applied, ratelimit, \
            ratelimit-policy, retry-after, x-request-id";
        assert_eq!(exposed, [readable], "{line}");
        assert!(listed.values("access-control-allow-credentials").is_empty());
        let other = ask(&service, line, &["Origin: https://evil.example"]).await;
        let none = ask(&service, line, &[]).await;
        for head in [&other, &none] {
            assert!(!head.0.contains("access-control-"), "{line}: {}", head.0);
        }
        for head in [&listed, &other, &none] {
            assert!(
                head.values("vary").contains(&"origin"),
                "{line}: {}",
                head.0
            );
        }
    }
}

#[tokio::test]
async fn preflights_are_answered_on_every_route_for_listed_pages_alone() {
    let service = listing();
    for (path, methods) in paths() {
        let methods = methods.to_lowercase();
        let line = format!("OPTIONS {path}");
        let asked = [
            "Access-Control-Request-Method: PUT",
            "Access-Control-Request-Headers: lock-token",
            "Sec-Fetch-Site: cross-site",
        ];
        let listed = [&["Origin: https://ci.example.com"], &asked[..]].concat();
        let head = ask(&service, &line, &listed).await;
        assert_eq!(head.status(), "204", "{path}");
        let said = |name: &str| head.values(&format!("access-control-{name}"));
        assert_eq!(said("allow-origin"), ["https://ci.example.com"], "{path}");
        assert_eq!(said("allow-methods"), [methods.as_str()], "{path}");
        assert_eq!(
            said("allow-headers"),
            [
                "authorization, content-type, fencing-token, lock-token, idempotency-key, if-none-match, \
              last-event-id, prefer, x-request-id, traceparent"
            ]
        );
        assert_eq!(said("max-age"), ["7200"]);
        for origin in ["Origin: https://evil.example", "Origin: null"] {
            let head = ask(&service, &line, &[&[origin], &asked[..]].concat()).await;
            assert_eq!(head.status(), "204", "{path}");
            assert!(!head.0.contains("access-control-"), "{}", head.0);
        }
    }
    let listed = ["Origin: https://ci.example.com"];
    let head = ask(&service, "OPTIONS /nope", &listed).await;
    assert_eq!(head.status(), "404");
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn no_page_of_elsewhere_embeds_an_answer() {
    let service = Service::start();
    let others = ["GET /docs/swagger-ui.css", "GET /nope", "OPTIONS /locks/a"];
    for line in &lines_and(others) {
        let head = ask(&service, line, &[]).await;
        let policy = head.values("cross-origin-resource-policy");
        assert_eq!(policy, ["same-origin"], "{line}: {}", head.0);
        assert_eq!(head.values("x-content-type-options"), ["nosniff"], "{line}");
    }
}

#[tokio::test]
async fn what_a_person_may_look_at_loads_nothing_from_elsewhere_and_is_in_no_frame() {
    let service = Service::start();
    let pages = operations().into_iter();
    let pages = pages.filter(|it| it.method == "GET" && !it.answers("unauthorized"));
    let pages = pages.map(|it| it.target("a")).chain(["/nope".to_owned()]);
    let pages: Vec<_> = pages.collect();
    assert!(pages.len() > 6, "{pages:?}");
    for path in pages {
        let line = format!("GET {path}");
        let head = ask(&service, &line, &["Accept: text/html, */*;q=0.1"]).await;
        for (name, value) in [
            ("referrer-policy", "no-referrer"),
            ("x-frame-options", "deny"),
            ("cross-origin-opener-policy", "same-origin"),
        ] {
            assert_eq!(head.values(name), [value], "{path}: {}", head.0);
        }
        assert_eq!(head.values("permissions-policy").len(), 1, "{path}");
        let policies = head.values("content-security-policy");
        let [policy] = policies[..] else {
            panic!("{path}: {policies:?}");
        };
        // The dashboard answers at many paths and names its base with `base-uri`.
        let base = if path == "/dashboard" {
            "base-uri 'self'"
        } else {
            "base-uri 'none'"
        };
        for part in ["default-src 'none';", base, "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{path}: {policy}");
    }
}

/// Sends a request with this line and these headers. Answers status and problem code.
async fn raw(service: &Service, line: &str, headers: &[&str]) -> (u16, String) {
    let answer = whole(service, line, headers).await;
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let code = answer.split("\"code\":\"").nth(1);
    let code = code.map_or("", |rest| rest.split('"').next().unwrap());
    (status, code.to_owned())
}

const ACQUIRE: &str = "POST /locks/a HTTP/1.1";
const INSPECT: &str = "GET /locks/a HTTP/1.1";

#[tokio::test]
async fn a_request_that_names_no_host_or_two_is_refused_before_anything_happens() {
    let service = Service::start();
    let invalid = (400, "invalid-request".to_owned());
    for headers in [
        &[][..],
        &["Host: localhost", "Host: localhost"],
        &["Host: localhost", "Host: evil.example"],
        &["Host:"],
        &["Host: user@localhost"],
        &["Host: localhost:port"],
        &["Host: localhost:99999"],
        &["Host: localhost evil.example"],
        &["Host: localhost, evil.example"],
        &["Host: ::1"],
        &["Host: http://localhost"],
        &["Host: localhost/"],
    ] {
        for line in [ACQUIRE, INSPECT] {
            let refused = raw(&service, line, headers).await;
            assert_eq!(refused, invalid, "{headers:?}");
        }
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn the_host_of_the_target_counts_and_may_not_contradict_the_header() {
    let service = Service::start();
    let absolute = |host: &str| format!("POST http://{host}/locks/a HTTP/1.1");
    let evil = absolute("evil.example");
    assert_eq!(raw(&service, &evil, &["Host: localhost"]).await.0, 400);
    assert_eq!(raw(&service, &evil, &["Host: evil.example"]).await.0, 421);
    assert_eq!(raw(&service, &evil, &[]).await.0, 421);
    let ours = absolute("localhost:7420");
    assert_eq!(raw(&service, &ours, &["Host: evil.example"]).await.0, 400);
    assert!(service.script.asked().is_empty());
    assert_eq!(raw(&service, &ours, &["Host: localhost:7420"]).await.0, 201);
}

#[tokio::test]
async fn a_request_of_http_1_0_without_a_host_is_refused_as_one_of_http_1_1_is() {
    let service = Service::start();
    let line = "POST /locks/a HTTP/1.0";
    assert_eq!(
        raw(&service, line, &[]).await,
        (400, "invalid-request".to_owned())
    );
    assert!(service.script.asked().is_empty());
    assert_eq!(raw(&service, line, &["Host: localhost"]).await.0, 201);
}

#[tokio::test]
async fn probes_are_answered_whatever_they_call_the_gateway() {
    let service = Service::start();
    for path in ["/healthz", "/readyz"] {
        let line = format!("GET {path} HTTP/1.1");
        assert_eq!(raw(&service, &line, &["Host: 10.1.2.3:7420"]).await.0, 200);
        let line = format!("GET {path} HTTP/1.0");
        assert_eq!(raw(&service, &line, &[]).await.0, 200);
    }
}
