//! Shared locks: the fields of a request, and all views of shared leases.

use latchgate::lock::{Limit, Mode, Sharing};

use crate::api::prelude::*;

fn sharing(limit: u64, has_slot: bool) -> Sharing {
    let limit = Limit::new(limit).unwrap();
    Sharing { limit, has_slot }
}

fn in_slot(slot: u16) -> HeldLease {
    let mode = Mode::Shared { slot: Some(slot) };
    HeldLease { mode, ..held() }
}

#[tokio::test]
async fn the_mode_and_the_limit_reach_the_store_and_the_slot_comes_back() {
    let service = Service::start();
    for (body, asked) in [
        ("{}", None),
        (r#"{"mode":"exclusive"}"#, None),
        (r#"{"mode":null,"limit":null}"#, None),
        (r#"{"mode":"shared"}"#, Some(sharing(1_000, false))),
        (r#"{"mode":"shared","limit":3}"#, Some(sharing(3, true))),
        (r#"{"limit":1}"#, Some(sharing(1, true))),
        (r#"{"limit":1000}"#, Some(sharing(1_000, true))),
    ] {
        let mode = asked.map_or("exclusive", |_| "shared");
        let slot = asked.and_then(|it| it.has_slot.then_some(0));
        let answer = service.acquire(body).await.is(201);
        assert_eq!(service.script.attempt().terms.sharing, asked, "{body}");
        let lease = answer.json();
        assert_eq!(
            fields(&lease, ["mode", "slot"]),
            json!([mode, slot]),
            "{body}"
        );
    }
}

#[tokio::test]
async fn what_is_wrong_with_mode_or_limit_is_named() {
    let service = Service::configured(|it| it.limits.max_holders = 20);
    let cases = r#"
        {"limit":0} => limit: is 0; allowed are 1 to 20
        {"limit":21} => limit: is 21; allowed are 1 to 20
        {"limit":18446744073709551615} => limit: is 18446744073709551615; allowed are 1 to 20
        {"limit":"3"} => limit: is a text; a number is expected, without quotes
        {"mode":"shared","limit":2.5} => limit: is 2.5; a whole number from 1 to 20 is expected
        {"mode":"exclusive","limit":1}
            => limit: is of a shared lock; leave it out, or ask for the mode shared
        {"mode":"Shared"} => mode: is not known; the modes are exclusive and shared
        {"mode":""} => mode: is not known; the modes are exclusive and shared
        {"mode":true} => mode: is true or false; a text is expected
    "#;
    for (body, expected) in rows(cases) {
        for target in ["/locks/a", "/locks/a/hold"] {
            let line = format!("POST {target}");
            let answer = service.ask(&line, JSON, body.clone()).await;
            assert_eq!(answer.errors(), [expected.as_str()], "{body}");
        }
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn a_store_that_cannot_share_is_not_asked_and_there_is_no_stream() {
    let service = Service::start();
    service.script.shares_nothing.set();
    for target in ["/locks/a", "/locks/a/hold"] {
        for body in [
            r#"{"mode":"shared"}"#,
            r#"{"limit":3,"wait_ms":1000}"#,
            r#"{"supersedes":"deploy","wait_ms":1000}"#,
        ] {
            let answer = service.ask(&format!("POST {target}"), JSON, body).await;
            assert_eq!(answer.problem(), (422, "unsupported-by-store"));
        }
    }
    assert!(service.script.asked().is_empty());
    assert_eq!(service.acquire("").await.status, 201, "alone it can be had");
}

#[tokio::test]
async fn a_renewal_and_a_stream_show_mode_and_slot() {
    let service = Service::start();
    let renewed = Ok(Renewal::Renewed(in_slot(7), Duration::ZERO));
    let renewals = [renewed.clone(), renewed];
    service.script.renew.extend(renewals);
    let answer = service.call("PUT /locks/a/renew", WITH_TOKEN).await.json();
    assert_eq!(fields(&answer, ["mode", "slot"]), json!(["shared", 7]));
    let token = format!("Lock-Token: {}\r\n", WITH_TOKEN[0].1);
    let mut adopter = Listener::hold(service.connect().await, &token, "").await;
    assert_eq!(adopter.expect("granted").await["slot"], 7);
    let body = r#"{"limit":2}"#;
    let mut holder = Listener::hold(service.connect().await, "", body).await;
    let lease = holder.expect("granted").await;
    assert_eq!(fields(&lease, ["mode", "slot"]), json!(["shared", 0]));
}

/// The body of the refusal that a request gets when these leases share the lock.
async fn refused(body: &str, holders: SharedHolders) -> Value {
    let service = Service::start();
    service.script.acquire.ok(held_by(Holder::Shared(holders)));
    let answer = service.acquire(body).await.is_problem(423, "locked");
    answer.retry_after_ms();
    answer.json()
}

#[tokio::test]
async fn who_finds_a_lock_shared_is_told_by_whom_and_why_that_is_too_many() {
    let told = refused(r#"{"limit":2}"#, sharers(2, 2)).await;
    let sharer = |slot: u64| {
        contender_view(json!({
            "expires_in_ms": 1_000 * (slot + 1), "fencing_token": 42 + slot, "mode": "shared",
            "slot": slot,
        }))
    };
    assert_eq!(told["holders"], json!([sharer(0), sharer(1)]));
    assert_eq!(told["holder_count"], 2);
    let detail = |told: &Value| told["detail"].as_str().unwrap().to_owned();
    assert_eq!(detail(&told), "2 share the lock, and the limit is 2.");
    for (body, holders, expected) in [
        ("{}", sharers(2, 2), "Other callers share the lock."),
        (
            r#"{"limit":3}"#,
            sharers(2, 2),
            "An earlier waiter comes first.",
        ),
        (
            r#"{"mode":"shared"}"#,
            sharers(100, 1_000),
            "1000 share the lock, and the limit is 1000.",
        ),
    ] {
        assert_eq!(detail(&refused(body, holders).await), expected);
    }
}

#[tokio::test]
async fn no_more_than_a_hundred_holders_are_told_of_and_how_many_they_are() {
    let told = refused("{}", sharers(120, 120)).await;
    assert_eq!(told["holders"].as_array().unwrap().len(), 100);
    assert_eq!(told["holder_count"], 120);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_tells_of_the_sharers() {
    let service = Service::start();
    let position = latchgate::store::contract::QueuePosition {
        ahead: 0,
        waited: Duration::ZERO,
        contention: contention(1),
    };
    service.script.acquire.ok(Acquisition::Queued(position));
    let left = latchgate::store::contract::Leaving::Left(Contention {
        holder: Some(Holder::Shared(sharers(3, 3))),
        waiters: 0,
    });
    service.script.leave.ok(left);
    let answer = service.acquire(r#"{"limit":3,"wait_ms":1000}"#).await;
    assert_eq!(answer.problem(), (423, "locked"));
    let told = answer.json();
    assert_eq!(
        told["detail"],
        "3 share the lock, and the limit is 3, and the wait is over."
    );
    assert_eq!(told["holder_count"], 3);
}

/// A waiter that shares the lock with this limit, or wants it alone.
fn waiter(limit: Option<u64>) -> Waiter {
    Waiter {
        owner: None,
        metadata: Metadata::default(),
        sharing: limit.map(|limit| sharing(limit, true)),
        waited: Duration::ZERO,
    }
}

#[tokio::test]
async fn who_stands_behind_a_smaller_limit_is_told_so() {
    for (limit, wants) in [
        (Some(2), Some("at most 2 holders")),
        (Some(1), Some("at most 1 holder")),
        (None, Some("the lock alone")),
        // The lock is just passing to the waiter.
        (Some(4), None),
    ] {
        let service = Service::start();
        let sharers = SharedHolders {
            first: Some(waiter(limit)),
            ..sharers(3, 3)
        };
        (service.script.acquire).ok(held_by(Holder::Shared(sharers.clone())));
        let refused = service.acquire(r#"{"limit":10}"#).await;
        let why = refused.is_problem(423, "locked").json()["detail"].clone();
        let expected = wants.map_or("An earlier waiter comes first.".to_owned(), |wants| {
            format!("3 share the lock, and an earlier waiter asked for {wants}.")
        });
        assert_eq!(why, expected);
        let shown = Inspection {
            queue: vec![waiter(limit), waiter(Some(10))],
            waiters: 2,
            ..shown(Holder::Shared(sharers))
        };
        let why = inspect(&service, shown)
            .await
            .get("waiting_because")
            .cloned();
        let expected = wants.map(|wants| {
            json!(format!(
                "3 share the lock, and the first waiter asked for {wants}"
            ))
        });
        assert_eq!(why, expected);
    }
}

async fn inspect(service: &Service, inspection: Inspection) -> Value {
    service.script.inspect.ok(inspection);
    service.get("/locks/a").await.json()
}

#[tokio::test]
async fn inspect_shows_all_who_share_a_lock_and_what_the_others_wait_for() {
    let service = Service::start();
    let waiter = |sharing| Waiter {
        sharing,
        owner: None,
        metadata: Metadata::default(),
        waited: Duration::from_millis(20),
    };
    let queue = [None, Some(sharing(1_000, false)), Some(sharing(3, true))];
    let inspection = Inspection {
        queue: queue.map(waiter).into(),
        waiters: 3,
        ..shown(Holder::Shared(sharers(2, 2)))
    };
    let lock = inspect(&service, inspection).await;
    let sharer = json!({
        "expires_at": "2026-11-20T12:00:02.000Z", "expires_in_ms": 2_000, "fencing_token": 43,
        "mode": "shared", "slot": 1,
    });
    assert_eq!(lock["holders"][1], holder_view(sharer));
    assert_eq!(lock["holder_count"], 2);
    let waiters = lock["waiters"].as_array().unwrap().iter();
    let wanted: Vec<_> = waiters
        .map(|waiter| (&waiter["mode"], &waiter["limit"]))
        .collect();
    let (exclusive_mode, shared_mode) = (&json!("exclusive"), &json!("shared"));
    let expected = [
        (exclusive_mode, &Value::Null),
        (shared_mode, &Value::Null),
        (shared_mode, &json!(3)),
    ];
    assert_eq!(wanted, expected);
    let many = inspect(&service, shown(Holder::Shared(sharers(100, 101)))).await;
    assert_eq!(many["holder_count"], 101);
}

#[tokio::test]
async fn a_list_shows_a_shared_lock_once_with_all_who_share_it() {
    let service = Service::start();
    let lock = HeldLock {
        name: LockName::new("gpu").unwrap(),
        holder: Holder::Shared(sharers(100, 250)),
        waiters: 1,
        found: None,
    };
    let page = Page {
        locks: vec![lock],
        next: None,
    };
    service.script.list.ok(page);
    let page = service.get("/locks").await.json();
    let [lock] = page["locks"].as_array().unwrap().as_slice() else {
        panic!("one lock: {page}");
    };
    assert_eq!(lock["holders"].as_array().unwrap().len(), 100);
    assert_eq!(lock["holder_count"], 250);
    assert_eq!(lock["holders"][99]["slot"], 99);
}

#[tokio::test]
async fn a_mismatch_says_that_mode_and_limit_are_covered_by_the_key() {
    let service = Service::start();
    service.script.acquire.ok(Acquisition::IdempotencyMismatch);
    let answer = service.acquire("").await;
    let told = answer.json();
    for field in ["mode", "limit"] {
        assert!(told["detail"].as_str().unwrap().contains(field), "{told}");
    }
}

#[tokio::test]
async fn a_repetition_in_another_mode_or_with_another_limit_has_another_fingerprint() {
    let service = Service::start();
    let key = ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");
    let mut seen = Vec::new();
    for body in words(r#"{} {"mode":"shared"} {"limit":3} {"limit":4}"#) {
        let headers = [key, JSON[0]];
        service.ask("POST /locks/a", &headers, body).await;
        let fingerprint = service.script.attempt().idempotency.unwrap().fingerprint;
        assert!(!seen.contains(&fingerprint), "{body}");
        seen.push(fingerprint);
    }
    let headers = [key, JSON[0]];
    let same = r#"{"mode":"shared","limit":3}"#;
    service.ask("POST /locks/a", &headers, same).await;
    let fingerprint = service.script.attempt().idempotency.unwrap().fingerprint;
    assert_eq!(fingerprint, seen[2], "a limit implies the mode");
}

#[tokio::test]
async fn shared_grants_and_leases_are_counted_among_all() {
    let service = Service::start();
    for body in ["", r#"{"mode":"shared"}"#, r#"{"limit":3}"#] {
        assert_eq!(service.acquire(body).await.status, 201);
    }
    let text = service.get("/metrics").await.body;
    for line in [
        "latchgate_acquires_total{outcome=\"granted\"} 3",
        "latchgate_shared_grants_total 2",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
    }
    let stats = service.get("/stats").await.json();
    assert_eq!(stats["totals"]["acquires"]["granted"], 3);
    assert_eq!(stats["totals"]["shared_grants"], 2);
}

/// The next event of a stream.
async fn event(events: &mut Listener) -> Value {
    loop {
        let chunk = events.chunk().await.unwrap();
        let data = chunk.lines().find_map(|line| line.strip_prefix("data: "));
        if let Some(data) = data {
            return serde_json::from_str(data).unwrap();
        }
    }
}

#[tokio::test]
async fn events_of_a_shared_lease_say_so_also_where_only_its_token_is_known() {
    let service = Service::start();
    let mut events = Listener::events(&service).await;
    let lease = service.acquire(r#"{"limit":3,"owner":"ci"}"#).await.json();
    let acquired = event(&mut events).await;
    let token = [("lock-token", lease["token"].as_str().unwrap())];
    service.call("DELETE /locks/a", &token).await.is(204);
    let released = event(&mut events).await;
    for (event, kind) in [(acquired, "acquired"), (released, "released")] {
        assert_eq!(event["kind"], kind);
        assert_eq!(
            fields(&event, ["mode", "slot"]),
            json!(["shared", 0]),
            "{event}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_event_of_a_wait_says_what_is_waited_for() {
    let service = Service::start();
    let mut events = Listener::events(&service).await;
    for (body, mode) in [
        (r#"{"wait_ms":100}"#, "exclusive"),
        (r#"{"wait_ms":100,"limit":2}"#, "shared"),
    ] {
        service.script.acquire.ok(queued(0));
        service.acquire(body).await;
        let queued = event(&mut events).await;
        assert_eq!(fields(&queued, ["kind", "mode"]), json!(["queued", mode]));
        assert_eq!(queued.get("slot"), None, "nothing is granted");
    }
}
