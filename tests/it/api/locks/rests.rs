//! Minimum holds and rests: the field of a request, and all views of a lock that rests.

use latchgate::lock::{MinHold, Mode};

use crate::api::prelude::*;

/// A rest in this slot, which has five seconds left.
fn resting(slot: Option<u16>) -> HeldLease {
    let mode = slot.map_or(Mode::Exclusive, |slot| Mode::Shared { slot: Some(slot) });
    HeldLease {
        mode,
        is_resting: true,
        expires_in: Duration::from_secs(5),
        ..held()
    }
}

/// A lock that one lease holds in slot 0, and whose slot 1 rests.
fn mixed() -> Holder {
    let mut holders = SharedHolders {
        resting: 1,
        ..sharers(1, 2)
    };
    holders.leases.push(HeldLease {
        fence: FencingToken::new(43).unwrap(),
        ..resting(Some(1))
    });
    Holder::Shared(holders)
}

fn rest_view(fence: u64, slot: Option<u16>) -> Value {
    json!({"fencing_token": fence, "slot": slot, "available_in_ms": 5_000})
}

#[tokio::test]
async fn the_minimum_hold_reaches_the_store() {
    let service = Service::start();
    for (body, asked) in [
        ("{}", None),
        (r#"{"min_hold_ms":0}"#, None),
        (r#"{"min_hold_ms":1}"#, Some(1)),
        (r#"{"min_hold_ms":30000}"#, Some(30_000)),
        (
            r#"{"limit":3,"ttl_ms":60000,"min_hold_ms":60000}"#,
            Some(60_000),
        ),
    ] {
        service.acquire(body).await.is(201);
        let min_hold = service.script.attempt().terms.min_hold;
        assert_eq!(min_hold.map(MinHold::as_millis), asked, "{body}");
    }
    let body = r#"{"names":["a","b"],"min_hold_ms":2000}"#;
    service.ask("POST /locks", JSON, body).await.is(201);
    let min_hold = service.script.attempt().terms.min_hold;
    assert_eq!(min_hold.map(MinHold::as_millis), Some(2_000));
}

#[tokio::test]
async fn it_is_at_most_the_ttl_that_an_api_key_may_have() {
    let key = Key::new();
    let service = Service::with_keys(&key.entry("ci", "acquire = ['*']\nmax_ttl_ms = 10_000"));
    let json = [key.auth(), JSON[0]];
    let body = r#"{"min_hold_ms": 10001}"#;
    let answer = service.ask("POST /locks/a", &json, body).await;
    let answer = answer.is_problem(403, "limit-exceeded");
    let detail = "`min_hold_ms` is 10001 ms; the API key may ask for at most 10000 ms.";
    assert_eq!(answer["detail"], detail);
}

#[tokio::test]
async fn a_store_that_keeps_no_rests_is_not_asked() {
    let service = Service::start();
    service.script.shares_nothing.set();
    for target in ["/locks/a", "/locks/a/hold"] {
        let body = r#"{"min_hold_ms":1000}"#;
        let answer = service.ask(&format!("POST {target}"), JSON, body).await;
        assert_eq!(answer.problem(), (422, "unsupported-by-store"));
        assert!(answer["detail"].as_str().unwrap().contains("`min_hold_ms`"));
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn a_lock_that_rests_has_no_holder_and_shows_for_how_long() {
    let service = Service::start();
    service
        .script
        .inspect
        .ok(shown(Holder::Lease(resting(None))));
    let shows = service.get("/locks/a").await.is(200).json();
    let expected = json!({
        "holder_count": 0, "holders": [], "name": "a", "resting": [rest_view(42, None)],
        "state": "resting", "waiter_count": 0, "waiters": [],
    });
    assert_eq!(shows, expected);
    service.script.inspect.ok(shown(mixed()));
    let shows = service.get("/locks/a").await.is(200).json();
    assert_eq!(
        fields(&shows, ["state", "holder_count"]),
        json!(["held", 1])
    );
    assert_eq!(shows["resting"], json!([rest_view(43, Some(1))]));
    assert_eq!(shows["holders"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn rests_are_not_counted_as_holders_whether_they_are_shown_or_not() {
    let hidden = SharedHolders {
        resting: 20,
        ..sharers(100, 150)
    };
    let mut shown_partly = sharers(100, 150);
    shown_partly.resting = 60;
    for lease in &mut shown_partly.leases[90..] {
        lease.is_resting = true;
    }
    for (holders, count, rests) in [(hidden, 130, 0), (shown_partly, 90, 10)] {
        let service = Service::start();
        let holder = || Holder::Shared(holders.clone());
        service.script.inspect.ok(shown(holder()));
        let seen = service.get("/locks/a").await.is(200).json();
        service.script.acquire.ok(held_by(holder()));
        let refused = service.acquire("{}").await.is_problem(423, "locked");
        for told in [seen, refused.json()] {
            assert_eq!(told["holder_count"], count);
            assert_eq!(told["resting"].as_array().map_or(0, Vec::len), rests);
        }
    }
}

#[tokio::test]
async fn a_refusal_says_what_rests_and_when_the_lock_is_available() {
    for (holder, wanted, expected) in [
        (
            Holder::Lease(resting(None)),
            "{}",
            json!([0, [rest_view(42, None)], 5_000]),
        ),
        (
            mixed(),
            r#"{"limit":2}"#,
            json!([1, [rest_view(43, Some(1))], null]),
        ),
    ] {
        let service = Service::start();
        service.script.acquire.ok(held_by(holder));
        let answer = service.acquire(wanted).await.is_problem(423, "locked");
        let told = answer.json();
        let said = fields(&told, ["holder_count", "resting", "available_in_ms"]);
        assert_eq!(said, expected);
        let holders = told["holders"].as_array().unwrap().len();
        assert_eq!(told["holder_count"], holders);
        let detail = told["detail"].as_str().unwrap();
        assert_eq!(detail.contains("rests"), holders == 0, "{detail}");
    }
    let service = Service::start();
    service.script.acquire.ok(held_by(Holder::Lease(held())));
    let told = service.acquire("{}").await.is_problem(423, "locked").json();
    assert!(told.get("resting").is_none() && told.get("available_in_ms").is_none());
}

#[tokio::test]
async fn a_list_and_a_break_show_a_rest() {
    let service = Service::start();
    let page = Page {
        locks: vec![HeldLock {
            name: LockName::new("a").unwrap(),
            holder: Holder::Lease(resting(None)),
            waiters: 0,
            found: None,
        }],
        next: None,
    };
    service.script.list.ok(page);
    let listed = service.get("/locks").await.is(200).json();
    let expected = json!({
        "holder_count": 0, "holders": [], "name": "a", "resting": [rest_view(42, None)],
        "waiter_count": 0,
    });
    assert_eq!(listed["locks"], json!([expected]));
    let broken = Breaking::Broken(Holder::Lease(resting(None)));
    service.script.break_lock.ok(broken);
    let body = r#"{"reason": "again", "fencing_token": 42}"#;
    let answer = service.ask("POST /locks/a/break", JSON, body).await.is(200);
    assert_eq!(answer["resting"], json!([rest_view(42, None)]));
    assert_eq!(answer["holders"], json!([]));
}
