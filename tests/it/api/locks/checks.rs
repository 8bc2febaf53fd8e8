//! Checking a fencing token: `GET /locks/{name}/check`.

use latchgate::store::contract::FenceCheck;

use crate::api::prelude::*;

const FENCE: [(&str, &str); 1] = [("fencing-token", "7")];

fn holds_for(left: Duration) -> FenceCheck {
    FenceCheck::Held {
        left,
        // The time of the lease stands still, so that the test is as slow as the machine.
        as_of: Instant::now() + Duration::from_hours(24),
    }
}

const STALE: FenceCheck = FenceCheck::Stale { is_outrun: false };
const OUTRUN: FenceCheck = FenceCheck::Stale { is_outrun: true };

/// Checks the fencing token 7 of the lock `a`.
async fn check(service: &Service, answer: FenceCheck) -> ApiResponse {
    service.script.check_fence.ok(answer);
    service.call("GET /locks/a/check", &FENCE).await
}

#[tokio::test]
async fn a_lease_that_holds_the_lock_passes_without_a_body_and_is_kept_in_no_cache() {
    let service = Service::start();
    for method in ["GET", "HEAD"] {
        service
            .script
            .check_fence
            .ok(holds_for(Duration::from_secs(1)));
        let line = format!("{method} /locks/a/check");
        let answer = service.call(&line, &FENCE).await.is(204);
        assert_eq!(answer.header("cache-control"), "no-store");
        assert!(answer.body.is_empty());
    }
    let fence = FencingToken::new(7).unwrap();
    let asked = service.script.asked();
    assert!(
        matches!(&asked[..], [StoreCall::CheckFence(one), StoreCall::CheckFence(_)] if *one == fence)
    );
}

#[tokio::test]
async fn whatever_the_client_behind_the_proxy_accepts_it_is_answered() {
    let service = Service::start();
    for answer in [holds_for(Duration::from_secs(1)), STALE] {
        service.script.check_fence.ok(answer);
        let headers = [
            FENCE[0],
            ("accept", "image/png"),
            ("origin", "https://files.example"),
        ];
        let told = service.call("GET /locks/a/check", &headers).await;
        assert_eq!(told.status, if answer == STALE { 403 } else { 204 });
    }
}

#[tokio::test]
async fn a_stale_one_is_refused_with_what_is_known_of_it() {
    let service = Service::start();
    let answer = check(&service, STALE).await;
    let answer = answer.is_problem(403, "stale-fencing-token");
    assert_eq!(
        answer["detail"],
        "No lease with the fencing token 7 holds the lock."
    );
    assert_eq!(answer.json().get("ended_ms_ago"), None);
    assert_eq!(answer.header("cache-control"), "no-store");
    let answer = check(&service, OUTRUN).await;
    let detail = "No lease with the fencing token 7 holds the lock.";
    assert_eq!(
        answer.is_problem(403, "stale-fencing-token")["detail"],
        detail
    );
    service.script.check_fence.ok(STALE);
    let head = service.call("HEAD /locks/a/check", &FENCE).await.is(403);
    assert!(head.body.is_empty());
}

#[tokio::test]
async fn how_long_ago_a_lease_ended_that_was_granted_here_is_told() {
    let service = Service::start();
    service.script.acquire.ok(Acquisition::Granted(HeldLease {
        fence: FencingToken::new(7).unwrap(),
        // Too short for the history, which would ask the store about the lease.
        expires_in: Duration::from_millis(900),
        as_of: Instant::now(),
        said: Said {
            owner: Some(Owner::new("ci").unwrap()),
            ..Said::default()
        },
        ..held()
    }));
    service.call("POST /locks/a", &[]).await.is(201);
    sleep(Duration::from_millis(920)).await;
    let answer = check(&service, STALE).await.is(403);
    let ago = answer["ended_ms_ago"].as_u64().unwrap();
    assert!((1..60_000).contains(&ago), "{ago}");
}

#[tokio::test]
async fn a_lease_that_ends_too_soon_is_refused_with_what_is_left() {
    let service = Service::start();
    let ask = async |left, for_ms: &str| {
        service
            .script
            .check_fence
            .ok(holds_for(Duration::from_millis(left)));
        service
            .call(&format!("GET /locks/a/check{for_ms}"), &FENCE)
            .await
    };
    ask(30_000, "?for_ms=30000").await.is(204);
    ask(30_000, "?for_ms=0").await.is(204);
    ask(1_000, "").await.is(204);
    let answer = ask(29_999, "?for_ms=30000").await;
    let answer = answer.is_problem(403, "ends-too-soon");
    assert_eq!(answer["expires_in_ms"], 29_999);
    let detail = "The lease holds the lock, but ends too soon.";
    assert_eq!(answer["detail"], detail);
    // The lease has ended by now.
    for for_ms in ["", "?for_ms=0", "?for_ms=1"] {
        service.script.check_fence.ok(holds_for(Duration::ZERO));
        ask(0, for_ms).await.is_problem(403, "stale-fencing-token");
    }
    // An answer that took so long that the lease may have ended meanwhile says nothing, and the store is asked again.
    service.script.check_fence.ok(holds_for(Duration::ZERO));
    ask(1_000, "").await.is(204);
}

#[tokio::test]
async fn without_a_number_nothing_is_asked() {
    let service = Service::start();
    for (headers, reason) in [
        (&[][..], "is missing; send the fencing token in this header"),
        (&[("fencing-token", "")], "is not a whole number"),
        (&[("fencing-token", "x")], "is not a whole number"),
        (&[("fencing-token", "+7")], "is not a whole number"),
        (&[("fencing-token", "7.0")], "is not a whole number"),
        (
            &[("fencing-token", "99999999999999999999")],
            "is not a whole number",
        ),
        (
            &[("fencing-token", "0")],
            "is 0; a fencing token is 1 to 9007199254740991",
        ),
        (
            &[("fencing-token", "7"), ("fencing-token", "7")],
            "is given more than once",
        ),
    ] {
        let answer = service.call("GET /locks/a/check", headers).await.is(400);
        assert_eq!(answer.errors(), [format!("Fencing-Token: {reason}")]);
    }
    for (query, error) in [
        ("for_ms=", "query.for_ms: is not a whole number"),
        ("for_ms=-1", "query.for_ms: is not a whole number"),
        (
            "for_ms=86400001",
            "query.for_ms: is 86400001 ms; allowed are 0 to 86400000 ms",
        ),
        ("for_ms=1&for_ms=2", "query.for_ms: is given more than once"),
        (
            "for=1",
            "query.for: is not known; the only parameter of this call is for_ms",
        ),
    ] {
        let line = format!("GET /locks/a/check?{query}");
        let answer = service.call(&line, &FENCE).await.is(400);
        assert_eq!(answer.errors(), [error]);
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn a_store_that_cannot_say_is_no_refusal_of_the_fencing_token() {
    let service = Service::start();
    let script = &service.script.check_fence;
    script.fail(Unavailability::Connect("refused".to_owned()));
    script.fail(Uncertainty::TimedOut);
    for _ in 0..2 {
        let answer = service.call("GET /locks/a/check", &FENCE).await;
        answer.is_problem(503, "store-unavailable");
    }
    let key = "lg:{a}:lock".to_owned();
    let found = "a set".into();
    script.fail(StoreError::ForeignData { key, found });
    let answer = service.call("GET /locks/a/check", &FENCE).await;
    answer.is_problem(500, "foreign-data");
}

#[tokio::test]
async fn checks_have_a_limit_of_their_own_for_each_key() {
    let (edge, other) = (Key::new(), Key::new());
    let lines = "check = ['*']\nrequests_per_second = 1";
    let file = edge.entry("edge", lines) + &other.entry("other", lines);
    let mut config = Config::default();
    config.limits.checks_per_second = 3;
    let (service, _, _) = Service::with_gate(config, &file);
    let ask = async |key: &Key| {
        service
            .call("GET /locks/a/check", &[FENCE[0], key.auth()])
            .await
    };
    for _ in 0..3 {
        ask(&edge).await.is(204);
    }
    let refused = ask(&edge).await;
    let refused = refused.is_problem(429, "rate-limited");
    assert_has(&refused["detail"].to_string(), "limits.checks_per_second");
    assert!(refused.retry_after_ms() >= 1);
    ask(&other).await.is(204);
    // The requests of the key are counted on their own.
    let session = service.call("GET /session", &[edge.auth()]).await;
    assert_eq!(session.status, 200);
}

#[tokio::test]
async fn a_refused_write_after_a_larger_grant_is_an_event_and_a_count_once_a_minute() {
    let key = Key::new();
    let service =
        Service::with_keys(&key.entry("edge", "check = ['*']\nview = ['*']\nmetrics = true"));
    let mut events = service.stream("GET /events", &[key.auth()], "").await;
    read_until(&mut events, "retry:").await;
    let ask = async |answer, fence| {
        service.script.check_fence.ok(answer);
        let headers = [("fencing-token", fence), key.auth()];
        service.call("GET /locks/a/check", &headers).await
    };
    // Nobody has got the lock since: no write was in danger.
    ask(STALE, "7").await.is(403);
    for _ in 0..3 {
        ask(OUTRUN, "7").await.is(403);
    }
    // A lease with the fencing token 9 was seen, and 8 is smaller.
    ask(holds_for(Duration::from_secs(9)), "9").await.is(204);
    ask(STALE, "8").await.is(403);
    ask(STALE, "10").await.is(403);
    let told = read_until(&mut events, "\"fencing_token\":8").await;
    assert_eq!(
        told.matches("event: stale-write-refused").count(),
        2,
        "{told}"
    );
    assert_has(
        &told,
        r#""kind":"stale-write-refused","name":"a","fencing_token":7,"#,
    );
    assert_has(&told, r#""by":"edge""#);
    let stats = service.call("GET /stats", &[key.auth()]).await.is(200);
    assert_eq!(stats["totals"]["stale_writes_refused"], 2);
    let metrics = service.call("GET /metrics", &[key.auth()]).await;
    assert_has(&metrics.body, "latchgate_stale_writes_refused_total 2\n");
}
