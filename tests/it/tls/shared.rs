//! Requests that share a connection over HTTP/2, one of which is in trouble.

use std::time::Duration;

use h2::RecvStream;
use http::Method;
use tokio::time::{Instant, timeout};

use crate::support::eventually;

use super::{
    certified::Certified,
    h2_client::{H2, head, piece, read},
    line::Line,
};

/// A client with room for the answers of many requests, and little for that of each.
fn roomy() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(1 << 20);
    builder
}

/// Holds a lock by a stream, of which nothing but the grant has been read.
async fn hold(h2: &mut H2, lock: &str, body: &str) -> RecvStream {
    let path = format!("/locks/{lock}/hold");
    let answer = h2.send(Method::POST, &path, &[], body).await.unwrap();
    let answer = head(answer).await;
    assert_eq!(answer.status(), 200);
    let mut events = answer.into_body();
    until(&mut events, "event: granted", 1).await;
    events
}

/// Reads events until one has come so often.
async fn until(events: &mut RecvStream, what: &str, times: usize) {
    let mut text = String::new();
    while text.matches(what).count() < times {
        let piece = piece(events).await.unwrap_or_else(|| panic!("{text}"));
        text += std::str::from_utf8(&piece).unwrap();
    }
}

async fn is_free(h2: &mut H2, lock: &str) {
    eventually("the lock is free", || {
        let mut h2 = h2.clone();
        async move { (h2.inspect(lock).await["state"] == "free").then_some(()) }
    })
    .await;
}

async fn waited_for(h2: &mut H2, lock: &str, waiters: u64) {
    eventually("so many wait", || {
        let mut h2 = h2.clone();
        async move { (h2.inspect(lock).await["waiter_count"] == waiters).then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_reset_ends_and_the_others_on_its_connection_go_on() {
    let certified = Certified::start();
    let mut h2 = H2::connect_with(&certified, &roomy()).await;
    let given_up = hold(&mut h2, "a", r#"{"ttl_ms": 2000}"#).await;
    let mut held = hold(&mut h2, "b", r#"{"ttl_ms": 2000}"#).await;
    let wait = r#"{"wait_ms": 50000}"#;
    let waiting = h2.send(Method::POST, "/locks/a", &[], wait).await.unwrap();
    waited_for(&mut h2, "a", 1).await;
    drop(given_up);
    let (status, lease) = read(waiting).await;
    assert_eq!(status, 201, "{lease}");
    until(&mut held, "event: renewed", 2).await;
}

#[tokio::test]
async fn a_dead_line_costs_all_its_requests_within_two_pings() {
    let certified = Certified::start();
    let line = Line::to(certified.gateway.address).await;
    let mut h2 = H2::connect_by(&certified, line.address, &roomy()).await;
    let mut observer = H2::connect(&certified).await;
    let mut held = hold(&mut h2, "held", r#"{"ttl_ms": 60000}"#).await;
    let (_, lease) = observer.acquire("other", r#"{"ttl_ms": 3600000}"#).await;
    assert!(lease["token"].is_string(), "{lease}");
    let wait = r#"{"wait_ms": 50000}"#;
    let waiting = h2.send(Method::POST, "/locks/other", &[], wait).await;
    waited_for(&mut observer, "other", 1).await;
    // A line that lives is no nuisance for as long as many pings take.
    let alive = until(&mut held, "event: renewed", 1);
    assert!(timeout(Duration::from_secs(12), alive).await.is_err());
    waited_for(&mut observer, "other", 1).await;

    line.die();
    let died = Instant::now();
    is_free(&mut observer, "held").await;
    waited_for(&mut observer, "other", 0).await;
    // Five seconds between two pings, and as many for the answer.
    assert!(died.elapsed() < Duration::from_secs(30));
    drop(waiting);
}
