//! `POST /locks/{name}`.

use latchgate::lock::Salt;

use crate::api::prelude::*;

const KEY: &str = "0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11";
const WITH_KEY: &[(&str, &str)] = &[("idempotency-key", KEY)];

#[tokio::test]
async fn an_empty_body_takes_all_defaults() {
    let service = Service::start();
    let answer = service.call("POST /locks/a", &[]).await.is(201);
    assert_eq!(answer.header("location"), "/locks/a");
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.redacted(), lease_view(json!({})));
}

#[tokio::test]
async fn everything_that_is_asked_for_comes_back() {
    let service = Service::start();
    let answer = service
        .acquire(
            r#"{"ttl_ms": 3000, "wait_ms": 0, "max_hold_ms": 60000, "owner": "ci \"7\" ü",
                "metadata": {"job": "4711"}}"#,
        )
        .await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let expected = json!({
        "expires_at": "2026-11-20T12:00:03.000Z", "expires_in_ms": 3_000, "ttl_ms": 3_000,
        "hold_expires_in_ms": 60_000, "metadata": {"job": "4711"}, "owner": "ci \"7\" ü",
        "renew_after_ms": 1_000,
    });
    assert_eq!(answer.redacted(), lease_view(expected));
}

#[tokio::test]
async fn null_is_the_same_as_leaving_out() {
    let service = Service::start();
    let answer = service
        .acquire(
            r#"{"ttl_ms": null, "wait_ms": null, "max_hold_ms": null, "min_hold_ms": null, "owner": null, "metadata": null}"#,
        )
        .await;
    let defaults = service.acquire("").await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert_eq!(answer.redacted(), defaults.redacted());
}

#[tokio::test]
async fn the_default_ttl_is_the_configured_one() {
    let config = with(Config::default(), |it| {
        it.limits.default_ttl_ms = Millis(7_000);
    });
    let answer = Service::with(config).acquire("{}").await;
    assert_eq!(answer["ttl_ms"], 7_000);
}

#[tokio::test]
async fn the_token_that_is_answered_is_the_one_that_was_granted() {
    let service = Service::start();
    let answer = service.acquire("").await;
    let token = Token::parse(answer["token"].as_str().unwrap()).unwrap();
    assert_eq!(service.script.asked().len(), 1);
    let attempt = service.script.attempt();
    assert_eq!(attempt.token, token.hash());
    assert_eq!(attempt.name.as_str(), "a");
    assert!(attempt.idempotency.is_none());
}

#[tokio::test]
async fn asked_again_with_its_key_a_lease_is_answered_with_200_and_the_same_token() {
    let service = Service::start();
    let first = service.call("POST /locks/a", WITH_KEY).await.is(201);
    assert_eq!(service.script.asked().len(), 1);
    let attempt = service.script.attempt();
    let salt: Salt = attempt.idempotency.as_ref().unwrap().salt;
    let mut lease = held();
    lease.expires_in = Duration::from_secs(21);
    lease.held_for = Duration::from_secs(9);
    let replayed = Acquisition::Replayed(lease, salt);
    service.script.acquire.ok(replayed);
    let again = service.call("POST /locks/a", WITH_KEY).await.is(200);
    assert_eq!(again.header("location"), "/locks/a");
    assert_eq!(again["token"], first["token"]);
    let expected = json!({
        "acquired_at": "2026-11-20T11:59:51.000Z", "expires_at": "2026-11-20T12:00:21.000Z",
        "expires_in_ms": 21_000, "renew_after_ms": 7_000,
    });
    assert_eq!(again.redacted(), lease_view(expected));
}

#[tokio::test]
async fn a_held_lock_is_423_with_its_holder() {
    let service = Service::start();
    let mut lease = held();
    lease.expires_in = Duration::from_millis(21_480);
    lease.said.owner = Some(Owner::new("ci-runner-7").unwrap());
    let refused = held_by(Holder::Lease(lease));
    service.script.acquire.ok(refused);
    let answer = service.call("POST /locks/a", JSON).await;
    assert_eq!(answer.problem(), (423, "locked"));
    assert!((4_000..=5_000).contains(&answer.retry_after_ms()));
    let holder = json!({"expires_in_ms": 21_480, "owner": "ci-runner-7"});
    let expected = json!({
        "code": "locked", "detail": "Another caller holds the lock.", "holder_count": 1,
        "holders": [contender_view(holder)], "request_id": "[request_id]",
        "retry_after_ms": "[retry_after_ms]", "status": 423, "title": "The lock is held",
        "type": "/problems/locked", "waited_ms": 0, "waiters": 0,
    });
    assert_eq!(answer.redacted(), expected);
}

#[tokio::test]
async fn a_lock_held_by_a_foreign_client_without_expiry_is_423_too() {
    let service = Service::start();
    let refused = held_by(Holder::Foreign {
        expires_in: None,
        mark: None,
    });
    service.script.acquire.ok(refused);
    let answer = service.acquire("").await.is_problem(423, "locked");
    let unknown = json!({
        "expires_in_ms": null, "fencing_token": null, "foreign": true, "mode": null,
    });
    assert_eq!(answer["holders"][0], contender_view(unknown));
}
