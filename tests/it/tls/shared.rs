//! Requests that share a connection over HTTP/2, one of which is in trouble.

use std::time::Duration;

use h2::RecvStream;
use http::Method;
use serde_json::Value;
use tokio::time::Instant;

use crate::support::{eventually, gateway::Setup};

use super::{
    certified::Certified,
    h2_client::{H2, head, piece, read, reset},
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
async fn an_answer_that_is_not_taken_is_given_up_and_nothing_else_on_the_connection() {
    let certified =
        Certified::start_with(|_| Setup::default().with("LATCHGATE_HTTP_IDLE_TIMEOUT_MS", "1000"));
    let mut h2 = H2::connect_with(&certified, &roomy()).await;
    let mut held = hold(&mut h2, "a", r#"{"ttl_ms": 2000}"#).await;
    // More than the window of one request, which is never opened again.
    let page = "/docs/swagger-ui-bundle.js";
    let answer = h2.send(Method::GET, page, &[], "").await.unwrap();
    let mut unread = head(answer).await.into_body();
    // Meanwhile one waits, and is answered, on the same connection.
    let wait = r#"{"wait_ms": 30000}"#;
    let waiting = h2.send(Method::POST, "/locks/a", &[], wait).await.unwrap();
    assert_eq!(reset(&mut unread).await, Some(h2::Reason::CANCEL));
    until(&mut held, "event: renewed", 2).await;
    assert_eq!(h2.inspect("a").await["waiter_count"], 1);
    drop(held);
    let (status, lease) = read(waiting).await;
    assert_eq!(status, 201, "{lease}");
    certified.gateway.logged("takes nothing of an answer");
}

#[tokio::test]
async fn an_answer_that_takes_the_room_of_the_whole_connection_is_given_up_for_a_lock() {
    let certified = Certified::start();
    // All requests together have no more room than one.
    let mut h2 = H2::connect(&certified).await;
    let page = "/docs/swagger-ui-bundle.js";
    let mut held = hold(&mut h2, "a", r#"{"ttl_ms": 2000}"#).await;
    let answer = h2.send(Method::GET, page, &[], "").await.unwrap();
    let mut unread = head(answer).await.into_body();
    // Not after the 75 seconds that it has for itself.
    assert_eq!(reset(&mut unread).await, Some(h2::Reason::CANCEL));
    drop(unread);
    until(&mut held, "event: renewed", 3).await;
}

#[tokio::test]
async fn a_stream_whose_events_are_not_taken_releases_its_lock_and_the_others_go_on() {
    let certified = Certified::start();
    let mut h2 = H2::connect_with(&certified, roomy().initial_window_size(1_024)).await;
    let mut unread = hold(&mut h2, "a", r#"{"ttl_ms": 1000}"#).await;
    let mut held = hold(&mut h2, "b", r#"{"ttl_ms": 1000}"#).await;
    // Its window is full after some of them, and it is given up a TTL after that.
    until(&mut held, "event: renewed", 12).await;
    let ended = reset(&mut unread);
    let goes_on = until(&mut held, "event: renewed", 40);
    tokio::select! {
        reason = ended => assert_eq!(reason, Some(h2::Reason::CANCEL)),
        () = goes_on => panic!("it is not given up"),
    }
    is_free(&mut h2, "a").await;
    until(&mut held, "event: renewed", 2).await;
}

#[tokio::test]
async fn a_dead_line_costs_a_lock_after_its_ttl_and_who_bears_more_goes_on_after_it() {
    let certified = Certified::start();
    let line = Line::to(certified.gateway.address).await;
    let mut h2 = H2::connect_by(&certified, line.address, &roomy()).await;
    let mut observer = H2::connect(&certified).await;
    let mut short = hold(&mut h2, "short", r#"{"ttl_ms": 1000}"#).await;
    let patient = hold(&mut h2, "long", r#"{"ttl_ms": 30000}"#).await;
    let wait = r#"{"wait_ms": 50000}"#;
    let waiting = h2.send(Method::POST, "/locks/long", &[], wait).await;
    let waiting = waiting.unwrap();
    waited_for(&mut observer, "long", 1).await;
    // It holds nothing yet: what its TTL will be says nothing of how long it may be gone.
    let wait = r#"{"ttl_ms": 1000, "wait_ms": 50000}"#;
    let queued = h2.send(Method::POST, "/locks/long/hold", &[], wait).await;
    let mut queued = head(queued.unwrap()).await.into_body();
    until(&mut queued, "event: queued", 1).await;
    // Long enough for many answers to pings: each is a sign of life.
    until(&mut short, "event: renewed", 9).await;

    line.die();
    let died = Instant::now();
    is_free(&mut observer, "short").await;
    // Found out with the third of the TTL that it takes to say something, and a TTL: not with the
    // minute after which a connection counts as dead.
    assert!(died.elapsed() < Duration::from_secs(15));
    assert!(died.elapsed() > Duration::from_millis(500));
    let shown = observer.inspect("long").await;
    assert_eq!(
        (&shown["state"], &shown["waiter_count"]),
        (&Value::from("held"), &2.into())
    );

    line.live();
    assert_eq!(reset(&mut short).await, Some(h2::Reason::CANCEL));
    h2.inspect("long").await;
    drop(patient);
    let (status, lease) = read(waiting).await;
    assert_eq!(status, 201, "{lease}");
    let log = certified.gateway.log();
    assert!(!log.contains("we never sent"), "{log}");
}
