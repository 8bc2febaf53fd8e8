//! Requests under one idempotency key are the same if their callers said the same.

use http::Method;
use serde_json::Value;

use super::{
    contended::Pair,
    service::{ApiResponse, Service},
};

const KEY: (&str, &str) = ("idempotency-key", "7c0d9d0a-2b51-4f0e-8a6e-0d6a3b1c9e55");

async fn acquire(gateway: &Service, body: &str) -> ApiResponse {
    let headers = [KEY, ("content-type", "application/json")];
    gateway
        .ask(Method::POST, "/locks/a", &headers, body.to_owned())
        .await
}

fn fence(lease: &Value) -> u64 {
    lease["fencing_token"].as_u64().unwrap()
}

#[tokio::test]
async fn what_was_acquired_can_be_held_under_its_key_and_the_other_way_round() {
    let header = format!("Idempotency-Key: {}\r\n", KEY.1);
    for body in ["", r#"{"ttl_ms": 20000, "owner": "me"}"#] {
        for pair in Pair::each().await {
            let acquired = acquire(&pair.gateways[0], body).await;
            assert_eq!(acquired.status, 201, "{}", acquired.body);
            let lease = acquired.json();
            let mut held = pair.hold(1, &header, body).await;
            assert_eq!(fence(&held.expect("granted").await), fence(&lease));
            let again = acquire(&pair.gateways[0], body).await;
            assert_eq!(again.status, 200, "{}", again.body);
            assert_eq!(again.json()["token"], lease["token"]);
        }
        for pair in Pair::each().await {
            let mut held = pair.hold(0, &header, body).await;
            let lease = held.expect("granted").await;
            let again = acquire(&pair.gateways[1], body).await;
            assert_eq!(again.status, 200, "{}", again.body);
            let again = again.json();
            assert_eq!(again["token"], lease["token"]);
            assert!(again["hold_expires_in_ms"].is_u64(), "it keeps its limit");
        }
    }
}

#[tokio::test]
async fn another_default_at_the_next_gateway_is_no_other_request() {
    for pair in Pair::each_with(7_000).await {
        let lease = acquire(&pair.gateways[0], "").await.json();
        let again = acquire(&pair.gateways[1], "").await;
        assert_eq!(again.status, 200, "{}", again.body);
        let again = again.json();
        assert_eq!(again["token"], lease["token"]);
        assert_eq!(again["ttl_ms"], 30_000, "the lease is as it was granted");
    }
}

#[tokio::test]
async fn other_words_are_another_request_by_whatever_operation() {
    let header = format!("Idempotency-Key: {}\r\n", KEY.1);
    for pair in Pair::each().await {
        let lease = acquire(&pair.gateways[0], r#"{"ttl_ms": 20000}"#).await;
        assert_eq!(lease.status, 201, "{}", lease.body);
        for other in [
            r#"{"ttl_ms": 20001}"#,
            r#"{"ttl_ms": 20000, "max_hold_ms": 86400000}"#,
            r#"{"ttl_ms": 20000, "owner": "me"}"#,
            r#"{"ttl_ms": 20000, "metadata": {"a": "b"}}"#,
            "",
        ] {
            let refused = acquire(&pair.gateways[1], other).await;
            let mismatch = (409, "idempotency-mismatch".to_owned());
            assert_eq!(refused.problem(), mismatch, "{other}");
            let held = pair.hold(1, &header, other).await;
            assert!(held.head.starts_with("http/1.1 409 "), "{}", held.head);
        }
    }
}
