//! HTTP conventions: `Prefer: wait`, the `RateLimit` header, and short idempotency keys.

use crate::api::prelude::*;

/// Asks for `a`, which one other request waits for, with these headers.
async fn wait(service: &Service, headers: &[(&str, &str)], body: &str) -> ApiResponse {
    ask(service, queued(1), headers, body).await
}

/// Asks for `a`, which is held, and asserts that the `Prefer` header sets no wait.
async fn refused(service: &Service, prefer: &str, body: &str) {
    let held = Acquisition::Held(contention(1));
    let answer = ask(service, held, &[("prefer", prefer)], body).await;
    assert_eq!(answer.header("preference-applied"), "", "{prefer}");
    assert_eq!(waited(&answer), 0, "{prefer}");
}

async fn ask(
    service: &Service,
    store: Acquisition,
    headers: &[(&str, &str)],
    body: &str,
) -> ApiResponse {
    service.script.acquire.ok(store);
    let headers = [JSON, headers].concat();
    let body = body.to_owned();
    service.ask("POST /locks/a", &headers, body).await
}

fn waited(answer: &ApiResponse) -> u64 {
    assert_eq!(answer.problem(), (423, "locked"));
    answer["waited_ms"].as_u64().unwrap()
}

// === Prefer ===

#[tokio::test(start_paused = true)]
async fn a_wait_can_be_preferred_in_a_header_and_is_said_to_be_applied() {
    let service = Service::start();
    for prefer in ["wait=2", "respond-async, Wait=\"2\"; x=y"] {
        let answer = wait(&service, &[("prefer", prefer)], "").await;
        assert_eq!(answer.header("preference-applied"), "wait=2", "{prefer}");
        assert!((2_000..3_000).contains(&waited(&answer)), "{}", answer.body);
    }
    // `Prefer` also applies if the lock is free, and if the body says `null`.
    let headers = [JSON[0], ("prefer", "wait=7")];
    let granted = service
        .ask("POST /locks/a", &headers, r#"{"wait_ms": null}"#)
        .await;
    assert_eq!(granted.status, 201);
    assert_eq!(granted.header("preference-applied"), "wait=7");
}

#[tokio::test(start_paused = true)]
async fn the_wait_in_the_body_counts_before_the_preferred_one() {
    let service = Service::start();
    let prefer = [("prefer", "wait=20")];
    let answer = wait(&service, &prefer, r#"{"wait_ms": 1500}"#).await;
    assert_eq!(answer.header("preference-applied"), "");
    assert!((1_500..2_500).contains(&waited(&answer)), "{}", answer.body);
    // A `wait_ms` of 0 is an explicit wait, so `Prefer` does not replace it.
    refused(&service, "wait=20", r#"{"wait_ms": 0}"#).await;
}

#[tokio::test(start_paused = true)]
async fn a_preferred_wait_is_cut_to_what_is_allowed_and_never_refused() {
    let service = Service::configured(|it| it.limits.max_wait_ms = Millis(1_900));
    let answer = wait(&service, &[("prefer", "wait=600")], "").await;
    assert_eq!(answer.header("preference-applied"), "wait=1");
    assert!((1_000..1_900).contains(&waited(&answer)), "{}", answer.body);
    for prefer in ["wait", "wait=", "wait=soon", "wait=-1", "handling=lenient"] {
        refused(&service, prefer, "").await;
    }
    let answer = wait(&Service::start(), &[("prefer", "wait=3600")], "").await;
    assert_eq!(answer.header("preference-applied"), "wait=55");
}

#[tokio::test(start_paused = true)]
async fn a_hold_can_prefer_to_wait_and_one_that_adopts_waits_for_nobody() {
    let service = Service::start();
    for (headers, applied) in [(&[][..], "wait=9"), (WITH_TOKEN, "")] {
        let headers = [&[("prefer", "wait=9")], headers].concat();
        let answer = service.peek("POST /locks/a/hold", &headers).await.is(200);
        assert_eq!(answer.header("preference-applied"), applied);
    }
}

// === Idempotency key ===

#[tokio::test]
async fn a_key_from_16_characters_on_is_taken_and_a_short_one_is_warned_of() {
    let service = Service::start();
    for line in ["POST /locks/a", "POST /locks/a/hold"] {
        for (length, is_taken, is_warned) in [
            (10, false, false),
            (15, false, false),
            (16, true, true),
            (21, true, true),
            (22, true, false),
            (36, true, false),
        ] {
            let key = "k".repeat(length);
            let answer = service.peek(line, &[("idempotency-key", &key)]).await;
            assert_eq!(answer.status < 300, is_taken, "{line} {length}");
            let warning = answer.header("latchgate-warning");
            assert_eq!(!warning.is_empty(), is_warned, "{line} {length}");
            assert!(!is_warned || warning.contains("22 characters"), "{warning}");
        }
    }
}

// === Rate limits ===

#[tokio::test(start_paused = true)]
async fn a_key_with_a_rate_is_told_of_it_before_it_is_refused() {
    let (key, other) = (Key::new(), Key::new());
    let all = "acquire = ['*']\nview = ['*']";
    let file = key.entry("ci", &format!("{all}\nrequests_per_second = 1\nburst = 3"))
        + &other.entry("other", &format!("{all}\nmax_leases = 5"));
    let service = Service::with_keys(&file);
    let ask = async |line: &str, key: &Key| {
        let answer = service.peek(line, &[key.auth(), WITH_TOKEN[0]]).await;
        let limits = ["ratelimit-policy", "ratelimit"].map(|name| answer.header(name).to_owned());
        (answer.status, limits.join(" "))
    };
    let left = |left: &str| format!("\"requests\";q=3;w=3 \"requests\";{left}");
    for (line, status, told) in [
        ("GET /locks/a", 200, "r=2;t=1"),
        ("POST /locks/a", 201, "r=1;t=2"),
        // These requests do not count towards the limit; their answers show the rest of it all the same.
        ("PUT /locks/a/renew", 200, "r=1;t=2"),
        ("POST /locks/a/hold", 200, "r=1;t=2"),
        ("GET /locks", 200, "r=0;t=3"),
        ("GET /locks/a", 429, "r=0;t=3"),
    ] {
        assert_eq!(ask(line, &key).await, (status, left(told)), "{line}");
    }
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(ask("GET /locks/a", &key).await, (200, left("r=1;t=2")));
    for line in ["GET /locks/a", "GET /locks", "GET /healthz"] {
        assert_eq!(ask(line, &other).await, (200, " ".to_owned()), "{line}");
    }
}

// === Forms ===

#[tokio::test]
async fn what_curl_sends_with_d_is_taken_if_it_is_empty_and_else_told_what_to_type() {
    let service = Service::start();
    let form = [("content-type", "application/x-www-form-urlencoded")];
    service.call("POST /locks/a", &form).await.is(201);
    for body in ["ttl_ms=5000", "{\"ttl_ms\": 5000}"] {
        let refused = service.ask("POST /locks/a", &form, body).await;
        assert_eq!(refused.problem(), (415, "unsupported-media-type"));
        let detail = refused["detail"].as_str().unwrap().to_owned();
        for typed in [
            "-d",
            "--json '{..}'",
            "-H 'Content-Type: application/json' -d '{..}'",
        ] {
            assert!(detail.contains(typed), "{typed}: {detail}");
        }
    }
}
