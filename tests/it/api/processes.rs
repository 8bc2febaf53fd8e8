//! Held locks when whole gateways end: the real program, two of it, on one Redis.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio::{net::TcpStream, time::Instant};

use super::listener::Listener;
use crate::support::{
    RedisServer,
    gateway::{Gateway, Setup},
};

async fn pair() -> (RedisServer, Gateway, Gateway) {
    let server = RedisServer::start().await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let start = || Gateway::start_with(Setup::default().with("LATCHGATE_STORE", &url));
    let (first, second) = (start(), start());
    (server, first, second)
}

async fn hold(gateway: &Gateway, headers: &str, body: &str) -> Listener {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    Listener::hold(stream, headers, body).await
}

fn fence(lease: &Value) -> u64 {
    lease["fencing_token"].as_u64().unwrap()
}

#[tokio::test]
async fn the_lock_of_a_gateway_that_is_killed_passes_on_when_the_ttl_is_over() {
    let (_server, mut first, second) = pair().await;
    let body = r#"{"ttl_ms": 3000, "wait_ms": 20000}"#;
    let mut held = hold(&first, "", body).await;
    let lease = held.expect("granted").await;
    let mut next = hold(&second, "", body).await;
    next.expect("queued").await;
    held.expect("renewed").await;
    let killed = Instant::now();
    first.kill();
    let after = next.expect("granted").await;
    let waited = killed.elapsed();
    // No earlier than its TTL, counted from a renewal just before; no later than a few seconds after.
    assert!(waited > Duration::from_secs(2), "{waited:?}");
    assert!(waited < Duration::from_secs(15), "{waited:?}");
    assert!(fence(&after) > fence(&lease));
}

#[tokio::test]
async fn the_lock_of_a_gateway_that_is_told_to_end_is_adopted_at_another() {
    let (_server, mut first, second) = pair().await;
    let mut held = hold(&first, "", r#"{"ttl_ms": 3000}"#).await;
    let lease = held.expect("granted").await;
    let mut next = hold(&second, "", r#"{"wait_ms": 20000}"#).await;
    next.expect("queued").await;
    first.signal(Signal::TERM);
    held.expect("renewed").await;
    held.expect("draining").await;
    held.ends().await;
    drop(held);
    assert!(first.wait().success());
    let header = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
    let mut adopted = hold(&second, &header, "").await;
    assert_eq!(fence(&adopted.expect("granted").await), fence(&lease));
    drop(adopted);
    assert!(fence(&next.expect("granted").await) > fence(&lease));
}

#[tokio::test]
async fn a_gateway_that_is_killed_while_it_only_parks_delays_the_others_once() {
    let (_server, mut victim, other) = pair().await;
    let body = r#"{"wait_ms": 50000}"#;
    let held = hold(&other, "", "").await;
    let mut parked = Vec::new();
    for _ in 0..20 {
        let mut waits = hold(&victim, "", body).await;
        waits.expect("queued").await;
        parked.push(waits);
    }
    let mut others = Vec::new();
    for _ in 0..2 {
        let mut waits = hold(&other, "", body).await;
        waits.expect("queued").await;
        others.push(waits);
    }
    victim.kill();
    drop(held);
    let released = Instant::now();
    for mut next in others {
        // The dead who stood before them are passed over, and they are told of it.
        while next.event().await.0 != "granted" {}
        let waited = released.elapsed();
        // For each of the dead it would be three seconds.
        assert!(waited < Duration::from_secs(30), "{waited:?}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_late_leaves_the_lock_to_the_gateway_that_adopted_it() {
    let (_server, first, second) = pair().await;
    let mut older = hold(&first, "", r#"{"ttl_ms": 3000}"#).await;
    let lease = older.expect("granted").await;
    let header = format!("Lock-Token: {}\r\n", lease["token"].as_str().unwrap());
    let mut newer = hold(&second, &header, "").await;
    assert_eq!(fence(&newer.expect("granted").await), fence(&lease));
    // The first gateway finds out only now that nobody listens there any more.
    drop(older);
    let mut next = hold(&first, "", r#"{"wait_ms": 20000}"#).await;
    next.expect("queued").await;
    // Four renewals are more than a TTL.
    for _ in 0..4 {
        newer.expect("renewed").await;
    }
    drop(newer);
    assert!(fence(&next.expect("granted").await) > fence(&lease));
}
