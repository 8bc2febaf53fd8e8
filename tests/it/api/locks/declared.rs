//! Declared locks: the terms of a request are completed by the declaration of its lock, or contradict it.

use latchgate::lock::{Fingerprint, HoldLimit, MinHold, Sharing, Terms};

use crate::api::prelude::*;

const LOCKS: &str = "
    [[lock]]
    name = 'api'
    limit = 20
    min_hold_ms = 12_000
    max_ttl_ms = 60_000
    description = 'twenty calls at a time'
    [[lock]]
    name = 'alone'
    mode = 'exclusive'
    max_hold_ms = 20_000
    [[lock]]
    name = 'shared'
    mode = 'shared'
    [[lock]]
    prefix = 'gpu:'
    limit = 1
    exclusive = 'refuse'
";

/// The limit of a request, its minimum hold, TTL and hold limit, as they reach the store. The limit of a lock that is
/// shared without a limit is 0.
fn reached(terms: &Terms) -> (Option<u16>, Option<u64>, u64, Option<u64>) {
    let limit = |it: Sharing| it.explicit_limit().map_or(0, latchgate::lock::Limit::get);
    (
        terms.sharing.map(limit),
        terms.min_hold.map(MinHold::as_millis),
        terms.ttl().as_millis(),
        terms.hold_limit().map(HoldLimit::as_millis),
    )
}

#[tokio::test]
async fn a_request_takes_the_declared_terms_that_it_does_not_name() {
    let service = Service::declaring(LOCKS);
    for (name, body, expected) in [
        ("api", "{}", (Some(20), Some(12_000), 30_000, None)),
        (
            "api",
            r#"{"limit":20,"min_hold_ms":12000}"#,
            (Some(20), Some(12_000), 30_000, None),
        ),
        (
            "api",
            r#"{"mode":"shared","ttl_ms":60000}"#,
            (Some(20), Some(12_000), 60_000, None),
        ),
        (
            "api",
            r#"{"ttl_ms":1000}"#,
            (Some(20), Some(12_000), 12_000, None),
        ),
        (
            "api",
            r#"{"max_hold_ms":90000}"#,
            (Some(20), Some(12_000), 30_000, Some(90_000)),
        ),
        (
            "api",
            r#"{"mode":"exclusive"}"#,
            (None, Some(12_000), 30_000, None),
        ),
        ("alone", "{}", (None, None, 20_000, Some(20_000))),
        (
            "alone",
            r#"{"mode":"exclusive","ttl_ms":5000}"#,
            (None, None, 5_000, Some(20_000)),
        ),
        (
            "alone",
            r#"{"ttl_ms":5000,"max_hold_ms":9000}"#,
            (None, None, 5_000, Some(9_000)),
        ),
        ("shared", "{}", (Some(0), None, 30_000, None)),
        ("shared", r#"{"limit":7}"#, (Some(7), None, 30_000, None)),
        (
            "shared",
            r#"{"mode":"exclusive"}"#,
            (None, None, 30_000, None),
        ),
        ("gpu:1", "{}", (Some(1), None, 30_000, None)),
        ("gpu", "{}", (None, None, 30_000, None)),
        (
            "other",
            r#"{"limit":7,"min_hold_ms":1000}"#,
            (Some(7), Some(1_000), 30_000, None),
        ),
    ] {
        service
            .ask(&format!("POST /locks/{name}"), JSON, body)
            .await
            .is(201);
        assert_eq!(
            reached(&service.script.attempt().terms),
            expected,
            "{name} {body}"
        );
    }
}

#[tokio::test]
async fn a_request_that_says_something_else_is_told_both_values() {
    let service = Service::declaring(LOCKS);
    for (name, body, errors) in [
        (
            "api",
            r#"{"limit":10}"#,
            json!([["limit", "is 10, and declared as 20"]]),
        ),
        (
            "api",
            r#"{"min_hold_ms":0}"#,
            json!([["min_hold_ms", "is 0, and declared as 12000"]]),
        ),
        (
            "api",
            r#"{"limit":21,"min_hold_ms":12001}"#,
            json!([
                ["limit", "is 21, and declared as 20"],
                ["min_hold_ms", "is 12001, and declared as 12000"]
            ]),
        ),
        (
            "alone",
            r#"{"mode":"shared"}"#,
            json!([["mode", "is shared, and declared as exclusive"]]),
        ),
        (
            "alone",
            r#"{"limit":2}"#,
            json!([["mode", "is shared, and declared as exclusive"]]),
        ),
        (
            "gpu:1",
            r#"{"mode":"exclusive"}"#,
            json!([["mode", "is exclusive, and declared as shared"]]),
        ),
        (
            "gpu:1",
            r#"{"reserve":{"until":"2026-11-20T12:00:30Z","reason":"x"}}"#,
            json!([["mode", "is exclusive, and declared as shared"]]),
        ),
    ] {
        for target in [format!("/locks/{name}"), format!("/locks/{name}/hold")] {
            if body.contains("reserve") && target.ends_with("hold") {
                continue;
            }
            let answer = service.ask(&format!("POST {target}"), JSON, body).await;
            let answer = answer.is_problem(409, "declared-differently");
            let told = answer["errors"].as_array().unwrap().iter();
            let told: Vec<_> = told
                .map(|error| fields(error, ["field", "reason"]))
                .collect();
            assert_eq!(json!(told), errors, "{target} {body}");
            let detail = answer["detail"].as_str().unwrap();
            assert!(detail.contains(name), "{detail}");
        }
    }
    assert!(
        service.script.asked().is_empty(),
        "no such request reaches the store"
    );
}

#[tokio::test]
async fn what_is_above_a_declared_bound_is_refused_like_what_is_above_a_limit() {
    let service = Service::declaring(LOCKS);
    for (name, body, field, asked, most) in [
        ("api", r#"{"ttl_ms":60001}"#, "ttl_ms", 60_001, 60_000),
        ("alone", r#"{"ttl_ms":20001}"#, "ttl_ms", 20_001, 20_000),
        (
            "alone",
            r#"{"ttl_ms":5000,"max_hold_ms":20001}"#,
            "max_hold_ms",
            20_001,
            20_000,
        ),
        (
            "alone",
            r#"{"ttl_ms":20000,"min_hold_ms":20001}"#,
            "min_hold_ms",
            20_001,
            20_000,
        ),
    ] {
        let answer = service
            .ask(&format!("POST /locks/{name}"), JSON, body)
            .await;
        let answer = answer.is_problem(400, "invalid-request");
        let error = &answer["errors"][0];
        assert_eq!(error["field"], field, "{body}");
        if field != "min_hold_ms" {
            let reason = format!(
                "is {asked} ms; the declaration of the lock `{name}` allows at most {most} ms"
            );
            assert_eq!(error["reason"], reason, "{body}");
        }
    }
    // The declared minimum hold raises the TTL, which the hold limit must not cut.
    let body = r#"{"ttl_ms":1000,"max_hold_ms":11999}"#;
    let answer = service
        .ask("POST /locks/api", JSON, body)
        .await
        .is_problem(400, "invalid-request");
    assert_eq!(answer["errors"][0]["field"], "max_hold_ms");
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn a_required_order_that_is_missing_is_named() {
    let service = Service::declaring("[[lock]]\nname = 'deploy'\norder = 'required'");
    for target in ["/locks/deploy", "/locks/deploy/hold"] {
        let answer = service.ask(&format!("POST {target}"), JSON, "{}").await;
        let answer = answer.is_problem(400, "invalid-request");
        let error = json!({
            "field": "order",
            "reason": "is missing; the lock `deploy` is declared with order = \"required\"",
        });
        assert_eq!(answer["errors"], json!([error]));
    }
    // Who reserves the lock deploys nothing.
    let body = r#"{"reserve":{"until":"2026-11-20T12:00:30Z","reason":"x"}}"#;
    service.ask("POST /locks/deploy", JSON, body).await.is(201);
}

#[tokio::test]
async fn a_renewal_is_bounded_and_not_refused() {
    let service = Service::declaring(LOCKS);
    for (target, body, expected) in [
        (
            "PUT /locks/api/renew",
            r#"{"ttl_ms":86400000}"#,
            Some(60_000),
        ),
        ("PUT /locks/api/renew", r#"{"ttl_ms":1000}"#, Some(1_000)),
        ("PUT /locks/api/renew", "{}", None),
        (
            "PUT /locks/other/renew",
            r#"{"ttl_ms":86400000}"#,
            Some(86_400_000),
        ),
    ] {
        let json = [WITH_TOKEN[0], JSON[0]];
        service.ask(target, &json, body).await.is(200);
        let asked = service.script.asked();
        let Some(StoreCall::Renew(_, ttl)) = asked.last() else {
            panic!("{asked:?}");
        };
        assert_eq!(ttl.asked.map(Ttl::as_millis), expected, "{target} {body}");
    }
}

/// The fingerprint of a request, as it reaches the store.
async fn fingerprint(service: &Service, target: &str, body: &'static str) -> Fingerprint {
    let headers = [JSON[0], ("idempotency-key", "a-key-that-is-long-enough")];
    service.ask(target, &headers, body).await.is(201);
    let asked = service.script.asked();
    let mut fingerprints = asked.iter().rev().filter_map(|call| match call {
        StoreCall::Acquire(attempt) => Some(attempt.idempotency.as_ref()?.fingerprint),
        _ => None,
    });
    fingerprints.next().unwrap()
}

#[tokio::test]
async fn the_fingerprint_is_of_what_the_request_says() {
    let (declared, free) = (Service::declaring(LOCKS), Service::start());
    for (target, body) in [
        ("POST /locks/api", "{}"),
        (
            "POST /locks/api",
            r#"{"limit":20,"min_hold_ms":12000,"ttl_ms":30000}"#,
        ),
        ("POST /locks/api", r#"{"mode":"shared"}"#),
        ("POST /locks/alone", "{}"),
        ("POST /locks/alone", r#"{"mode":"exclusive"}"#),
        ("POST /locks", r#"{"names":["aaa","api"]}"#),
        (
            "POST /locks",
            r#"{"names":["aaa",{"name":"shared","mode":"shared"}]}"#,
        ),
    ] {
        let one = fingerprint(&declared, target, body).await;
        assert_eq!(
            one,
            fingerprint(&free, target, body).await,
            "{target} {body}"
        );
    }
    // A request for the lock alone is not the one that takes the lock as it is declared.
    for (target, unsaid, alone) in [
        ("POST /locks/api", "{}", r#"{"mode":"exclusive"}"#),
        (
            "POST /locks",
            r#"{"names":["aaa","api"]}"#,
            r#"{"names":["aaa","api"],"mode":"exclusive"}"#,
        ),
    ] {
        let unsaid = fingerprint(&declared, target, unsaid).await;
        assert_ne!(
            unsaid,
            fingerprint(&declared, target, alone).await,
            "{target}"
        );
    }
}

#[tokio::test]
async fn each_lock_of_a_group_has_its_own_declaration() {
    let service = Service::declaring(LOCKS);
    let body =
        r#"{"names":["alone","api",{"name":"gpu:1"},{"name":"other","limit":3}],"ttl_ms":15000}"#;
    service.ask("POST /locks", JSON, body).await.is(201);
    let asked = service.script.asked();
    let attempts = asked.iter().filter_map(|call| match call {
        StoreCall::Acquire(attempt) => Some((attempt.name.as_str(), reached(&attempt.terms))),
        _ => None,
    });
    let attempts: BTreeMap<_, _> = attempts.collect();
    let brief = attempts["other"].2;
    let expected = [
        ("alone", (None, None, brief, Some(20_000))),
        ("api", (Some(20), Some(12_000), brief, None)),
        ("gpu:1", (Some(1), None, brief, None)),
        ("other", (Some(3), None, brief, None)),
    ];
    assert_eq!(attempts, expected.into());
    let body = r#"{"names":["a","api"],"limit":3}"#;
    let answer = service.ask("POST /locks", JSON, body).await;
    let answer = answer.is_problem(409, "declared-differently");
    assert!(answer["detail"].as_str().unwrap().contains("`api`"));
    // All are declared as shared, so the order would count for none.
    let body = r#"{"names":["api","gpu:1"],"order":7}"#;
    let answer = service.ask("POST /locks", JSON, body).await;
    let answer = answer.is_problem(400, "invalid-request");
    assert_eq!(answer["errors"][0]["field"], "order");
}

#[tokio::test]
async fn the_leases_of_a_group_get_the_ttl_that_is_declared_for_each() {
    let service = Service::declaring(
        "[[lock]]\nname='a'\nmax_ttl_ms=9_000\n[[lock]]\nname='b'\nmin_hold_ms=40_000",
    );
    service
        .ask("POST /locks", JSON, r#"{"names":["a","b","c"]}"#)
        .await
        .is(201);
    let asked = service.script.asked();
    let renewals = asked.iter().filter_map(|call| match call {
        StoreCall::Renew(_, ttl) => Some(ttl.asked.unwrap().as_millis()),
        _ => None,
    });
    assert_eq!(renewals.collect::<Vec<_>>(), [9_000, 40_000, 30_000]);
}

#[tokio::test]
async fn a_held_lock_shows_what_its_declaration_is_for() {
    let service = Service::declaring(LOCKS);
    for (target, name) in [
        ("/locks/api", None),
        ("/locks/api/hold", None),
        ("/locks", Some("api")),
    ] {
        service
            .script
            .acquire
            .ok(held_by(Holder::Shared(sharers(20, 20))));
        let body = name.map_or("{}", |_| r#"{"names":["api","b"]}"#);
        let answer = service.ask(&format!("POST {target}"), JSON, body).await;
        let answer = answer.is_problem(423, "locked");
        assert_eq!(answer["description"], "twenty calls at a time", "{target}");
        assert_eq!(answer["detail"], "20 share the lock, and the limit is 20.");
    }
    service.script.acquire.ok(held_by(Holder::Lease(held())));
    let answer = service
        .ask("POST /locks/alone", JSON, "{}")
        .await
        .is_problem(423, "locked");
    assert_eq!(answer["description"], Value::Null);
}

#[tokio::test]
async fn an_inspect_shows_the_declaration() {
    let service = Service::declaring(LOCKS);
    service.script.inspect.ok(free());
    let seen = service.get("/locks/gpu:7").await.is(200).json();
    let declared = json!({
        "name": null, "prefix": "gpu:", "mode": "shared", "limit": 1, "min_hold_ms": null, "max_ttl_ms": null,
        "max_hold_ms": null, "order": null, "exclusive": "refuse", "description": null,
    });
    assert_eq!(seen["declared"], declared);
    service.script.inspect.ok(free());
    let seen = service.get("/locks/other").await.is(200).json();
    assert_eq!(seen["declared"], Value::Null);
}

#[tokio::test]
async fn other_locks_can_be_refused() {
    let service = Service::declaring(&format!("undeclared = 'refuse'\n{LOCKS}"));
    for (target, body) in [
        ("/locks/other", "{}"),
        ("/locks/other/hold", "{}"),
        (
            "/locks/other",
            r#"{"reserve":{"until":"2026-11-20T12:00:30Z","reason":"x"}}"#,
        ),
        ("/locks", r#"{"names":["api","other"]}"#),
    ] {
        let answer = service.ask(&format!("POST {target}"), JSON, body).await;
        let answer = answer.is_problem(403, "undeclared-lock");
        assert!(answer["detail"].as_str().unwrap().contains("`other`"));
    }
    assert!(service.script.asked().is_empty());
    service.ask("POST /locks/api", JSON, "{}").await.is(201);
    // What is held is renewed and released, whatever is declared.
    service
        .ask("PUT /locks/other/renew", WITH_TOKEN, "")
        .await
        .is(200);
    service
        .call("DELETE /locks/other", WITH_TOKEN)
        .await
        .is(204);
}

#[tokio::test]
async fn a_reservation_passes_beside_a_limit_and_has_no_minimum_hold() {
    let service = Service::declaring(LOCKS);
    let body = r#"{"reserve":{"until":"2026-11-20T12:00:30Z","reason":"drain"}}"#;
    service.ask("POST /locks/api", JSON, body).await.is(201);
    let terms = service.script.attempt().terms;
    assert!(terms.reservation().is_some());
    assert_eq!((terms.sharing, terms.min_hold), (None, None));
}

#[tokio::test]
async fn a_minimum_hold_above_the_ttl_of_an_api_key_is_named() {
    let key = Key::new();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("locks.toml");
    fs::write(&file, LOCKS).unwrap();
    let mut config = Config::default();
    config.locks.file = file.to_str().unwrap().to_owned();
    let entry = key.entry("ci", "acquire = ['*']\nmax_ttl_ms = 10_000");
    let (service, ..) = Service::with_gate(config, &entry);
    let json = [key.auth(), JSON[0]];
    for body in ["{}", r#"{"ttl_ms":5000}"#] {
        let answer = service.ask("POST /locks/api", &json, body).await;
        let answer = answer.is_problem(403, "limit-exceeded");
        let detail = "`min_hold_ms` is 12000 ms; the API key may ask for at most 10000 ms.";
        assert_eq!(answer["detail"], detail);
    }
}
