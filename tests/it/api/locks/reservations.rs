//! Reservations: the field of a request, its permission, the views of a reserved lock, and the end of a reservation by the
//! key that made it.

use latchgate::lock::{BreakTarget, Reason, Reservation};

use crate::api::prelude::*;

/// A reservation from the clock of these tests until two days later, by this key.
fn reservation(by: Option<&str>) -> Reservation {
    Reservation {
        until_ms: 1_795_348_800_000,
        reason: Reason::new("load test").unwrap(),
        by: by.map(Into::into),
    }
}

/// The lease that is this reservation.
fn reserved(by: Option<&str>) -> HeldLease {
    HeldLease {
        reservation: Some(Box::new(reservation(by))),
        ..held()
    }
}

const BODY: &str = r#"{"reserve":{"until":"2026-11-22T13:00:00+01:00","reason":"load test"}}"#;

fn view(by: Option<&str>) -> Value {
    json!({"until": "2026-11-22T12:00:00.000Z", "reason": "load test", "reserved_by": by})
}

/// A gateway with the key `ops`, which may acquire and reserve and has these lines too.
fn of_ops(key: &Key, more: &str) -> Service {
    let lines = format!("acquire = ['*']\nreserve = ['*']\nmax_ttl_ms = 10_000\n{more}");
    Service::with_keys(&key.entry("ops", &lines))
}

async fn end(service: &Service, key: &Key, body: &str) -> ApiResponse {
    let headers = [key.auth(), JSON[0]];
    let body = body.to_owned();
    service.ask("POST /locks/a/break", &headers, body).await
}

#[tokio::test]
async fn a_reservation_reaches_the_store_and_is_shown() {
    let service = Service::start();
    let granted = service.acquire(BODY).await.is(201);
    assert_eq!(granted["reservation"], view(None));
    let attempt = service.script.attempt();
    assert_eq!(attempt.terms.reservation(), Some(&reservation(None)));
    assert!(attempt.terms.said == Said::default() && attempt.wait.is_none());
    let key = Key::new();
    let service = of_ops(&key, "view = ['*']");
    let headers = [key.auth(), JSON[0]];
    let answer = service.ask("POST /locks/a", &headers, BODY).await.is(201);
    assert_eq!(answer["reservation"], view(Some("ops")));
    let lease = || Holder::Lease(reserved(Some("ops")));
    service.script.inspect.ok(shown(lease()));
    let shows = service.call("GET /locks/a", &[key.auth()]).await.is(200);
    assert_eq!(shows["holders"][0]["reservation"], view(Some("ops")));
    assert_eq!(shows["holders"][0]["metadata"], json!({}));
    service.script.acquire.ok(held_by(lease()));
    let refused = service.ask("POST /locks/a", &headers, "{}").await;
    assert_eq!(refused.problem(), (423, "locked"));
    assert_eq!(refused["holders"][0]["reservation"], view(Some("ops")));
    let detail = "The lock is reserved by ops until 2026-11-22T12:00:00.000Z, because load test.";
    assert_eq!(refused["detail"], detail);
}

#[tokio::test]
async fn it_is_hidden_from_a_key_that_may_not_view_the_lock() {
    let key = Key::new();
    let service = of_ops(&key, "");
    let lease = Holder::Lease(reserved(Some("somebody")));
    service.script.acquire.ok(held_by(lease));
    let headers = [key.auth(), JSON[0]];
    let refused = service.ask("POST /locks/a", &headers, "{}").await;
    assert_eq!(refused.problem(), (423, "locked"));
    assert_eq!(refused["holders"][0]["reservation"], json!(null));
    assert_eq!(refused["detail"], "Another caller holds the lock.");
}

#[tokio::test]
async fn it_needs_its_permission_on_the_name_besides_acquire() {
    for (lines, status) in [
        ("acquire = ['a']\nreserve = ['a']\nmax_ttl_ms = 1_000", 201),
        ("acquire = ['*']\nreserve = ['b']", 403),
        ("acquire = ['*']\nview = ['*']\nbreak = ['*']", 403),
        ("reserve = ['*']", 403),
    ] {
        let key = Key::new();
        let service = Service::with_keys(&key.entry("ops", lines));
        let answer = service
            .ask("POST /locks/a", &[key.auth(), JSON[0]], BODY)
            .await;
        assert_eq!(answer.status, status, "{lines}");
        assert_eq!(service.script.acquired(), usize::from(status == 201));
    }
}

const NO_TIME: &str =
    "is missing or no time such as 2026-12-04T18:00:00Z or 2026-12-04T18:00:00+01:00";

#[tokio::test]
async fn its_end_is_in_the_future_and_not_too_far() {
    let service = Service::start();
    for (until, reason) in [
        ("2026-11-20T12:00:00.001Z", None),
        ("2026-12-20T12:00:00Z", None),
        // What programs write that are not strict, such as Java and `date +%z`.
        ("2026-11-22T18:00Z", None),
        ("2026-11-22T18:00:00+0100", None),
        ("2026-11-22T18:00:00+01:00[Europe/Berlin]", None),
        ("2026-12-01T23:59:60Z", None),
        ("2026-11-22T18:00:00", Some(NO_TIME)),
        ("2026-11-22T18:00:00+25:00", Some(NO_TIME)),
        ("18:00", Some(NO_TIME)),
        ("2026-11-20T11:59:59Z", Some("is in the past")),
        (
            "2026-12-20T12:00:00.001Z",
            Some("is too far ahead; allowed are 2592000000 ms (limits.max_reserve_ms)"),
        ),
    ] {
        let body = json!({"reserve": {"until": until, "reason": "x"}, "wait_ms": 100});
        let answer = service.acquire(&body.to_string()).await;
        match reason {
            None => assert_eq!(answer.status, 201, "{until}"),
            Some(reason) => assert_eq!(answer.errors(), [format!("reserve.until: {reason}")]),
        }
    }
    service.script.acquire.ok(Acquisition::ReservationOver);
    let over = service.acquire(BODY).await;
    assert_eq!(over.problem(), (409, "reservation-over"));
}

#[tokio::test]
async fn a_repetition_after_its_end_is_answered_by_the_store() {
    let service = Service::start();
    let body = r#"{"reserve":{"until":"2001-02-03T04:05:06Z","reason":"x"},"wait_ms":20000}"#;
    let key = ("idempotency-key", "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");
    for (answer, code) in [
        (Acquisition::IdempotencyExpired, "idempotency-expired"),
        (Acquisition::IdempotencyMismatch, "idempotency-mismatch"),
        (Acquisition::ReservationOver, "reservation-over"),
        // A request that continues a wait, after the time until which the lock was to be reserved.
        (held_by(Holder::Lease(held())), "reservation-over"),
    ] {
        service.script.acquire.ok(answer);
        let answer = service.ask("POST /locks/a", &[key, JSON[0]], body).await;
        assert_eq!(answer.problem(), (409, code));
        assert!(service.script.attempt().wait.is_none());
    }
    let new = service.acquire(body).await;
    assert_eq!(new.errors(), ["reserve.until: is in the past"]);
}

#[tokio::test]
async fn what_it_does_not_go_with_is_refused_by_name() {
    let service = Service::start();
    let reserve = BODY.trim_end_matches('}').to_owned() + "}";
    for (beside, field) in [
        (r#""ttl_ms":1000"#, "ttl_ms"),
        (r#""max_hold_ms":60000"#, "max_hold_ms"),
        (r#""min_hold_ms":1"#, "min_hold_ms"),
        (r#""mode":"shared""#, "mode"),
        (r#""limit":2"#, "limit"),
    ] {
        let answer = service.acquire(&format!("{reserve},{beside}}}")).await;
        let expected = format!("{field}: does not go with reserve: leave one of the two out");
        assert_eq!(answer.errors(), [expected]);
    }
    service
        .acquire(&format!(r#"{reserve},"mode":"exclusive","owner":"me"}}"#))
        .await
        .is(201);
    let hold = service.ask("POST /locks/a/hold", JSON, BODY).await;
    assert_eq!(
        hold.errors(),
        ["reserve: is not for a stream: acquire the lock without one"]
    );
    let group = format!(r#"{reserve},"names":["a","b"]}}"#);
    let group = service.ask("POST /locks", JSON, group).await;
    assert_eq!(group.problem(), (400, "invalid-request"));
    service.script.shares_nothing.set();
    let quorum = service.acquire(BODY).await;
    assert_eq!(quorum.problem(), (422, "unsupported-by-store"));
    assert_has(quorum["detail"].as_str().unwrap(), "`reserve`");
}

#[tokio::test]
async fn the_key_that_made_it_ends_it_and_no_other_key_does() {
    let key = Key::new();
    let own = Holder::Lease(reserved(Some("ops")));
    for (holder, body, status) in [
        (Some(own.clone()), r#"{"reason":"done"}"#, 200),
        (
            Some(own.clone()),
            r#"{"reason":"done","fencing_token":42}"#,
            200,
        ),
        (
            Some(own.clone()),
            r#"{"reason":"done","fencing_token":41}"#,
            403,
        ),
        (Some(own.clone()), r#"{"reason":"done","all":true}"#, 403),
        (
            Some(own.clone()),
            r#"{"reason":"done","grace_ms":1000}"#,
            403,
        ),
        (
            Some(Holder::Lease(reserved(Some("dev")))),
            r#"{"reason":"x"}"#,
            403,
        ),
        (
            Some(Holder::Lease(reserved(None))),
            r#"{"reason":"x"}"#,
            403,
        ),
        (Some(Holder::Lease(held())), r#"{"reason":"x"}"#, 403),
        // Perhaps an earlier copy of the request has ended the reservation.
        (None, r#"{"reason":"x"}"#, 409),
    ] {
        let service = of_ops(&key, "");
        let seen = Inspection {
            holder: holder.clone(),
            ..free()
        };
        service.script.inspect.ok(seen);
        service.script.break_lock.ok(Breaking::Broken(own.clone()));
        let answer = end(&service, &key, body).await;
        assert_eq!(answer.status, status, "{holder:?} {body}");
        let broken = service
            .script
            .asked()
            .into_iter()
            .find_map(|asked| match asked {
                StoreCall::Break(_, target) => Some(target),
                _ => None,
            });
        let meant = BreakTarget::Lease(FencingToken::new(42).unwrap());
        assert_eq!(broken, (status == 200).then_some(Some(meant)));
    }
    // Without `acquire`, the store is not even asked.
    let service = Service::with_keys(&key.entry("ops", "reserve = ['*']\nview = ['*']"));
    let answer = end(&service, &key, r#"{"reason":"x"}"#).await;
    assert_eq!(answer.problem(), (403, "forbidden"));
    assert!(service.script.asked().is_empty());
}
