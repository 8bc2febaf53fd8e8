//! Clients that take, renew and hold a lock of their own each, half of them over HTTP/2.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{either::Either, load::Load};
use crate::support::HttpRequest;

/// A stream renews at a third of it.
const TTL_MS: u64 = 4_000;
/// Of a lease that is renewed all the time.
const LONG_MS: u64 = 60_000;
/// How often the others ask: there is more to do on this machine.
const PAUSE: Duration = Duration::from_millis(20);
/// Which part of all requests comes over a connection of its own.
const NEW: u64 = 8;

/// Takes a lock and gives it back, over a connection that stays and over new ones.
pub(super) async fn acquire(load: Arc<Load>, number: u16) {
    let is_two = number.is_multiple_of(2);
    let path = format!("/locks/taken:{number}");
    let mut kept = Either::connect(&load.certified, is_two).await;
    let mut last = 0;
    for turn in 0.. {
        if load.is_over() {
            return;
        }
        let mut new = None;
        if u64::is_multiple_of(turn, NEW) {
            new = Some(Either::connect(&load.certified, is_two).await);
            load.tally.count("new connections");
        }
        let connection = new.as_mut().unwrap_or(&mut kept);
        let (status, lease) = connection.ask(&load.asks("POST", &path)).await;
        assert_eq!(status, 201, "{lease}");
        assert!(fence(&lease) > last, "{lease} after {last}");
        last = fence(&lease);
        let (status, problem) = connection
            .ask(&with(load.asks("DELETE", &path), &lease))
            .await;
        assert_eq!(status, 204, "{problem}");
        load.tally.count("turns");
        sleep(PAUSE).await;
    }
}

/// Renews a lease, over a connection that stays.
pub(super) async fn renew(load: Arc<Load>, number: u16) {
    let path = format!("/locks/renewed:{number}");
    let mut kept = Either::connect(&load.certified, number.is_multiple_of(2)).await;
    let wanted = load.asks("POST", &path).body(json!({"ttl_ms": LONG_MS}));
    let (status, lease) = kept.ask(&wanted).await;
    assert_eq!(status, 201, "{lease}");
    while !load.is_over() {
        let renewal = load.asks("PUT", &format!("{path}/renew"));
        let (status, renewed) = kept.ask(&with(renewal, &lease)).await;
        assert_eq!(status, 200, "{renewed}");
        assert_eq!(fence(&renewed), fence(&lease));
        load.tally.count("renewals");
        sleep(PAUSE).await;
    }
}

/// Holds a lock by one stream for as long as what it has shown is shown, and then goes on by another.
pub(super) async fn hold(load: Arc<Load>, number: u16) {
    let is_two = number.is_multiple_of(2);
    let path = format!("/locks/held:{number}/hold");
    let open = async |asked: &HttpRequest| {
        let connection = Either::connect(&load.certified, is_two).await;
        let mut events = connection.open(asked).await;
        let (name, lease) = events.next().await;
        assert_eq!(name, "granted", "{lease}");
        (events, lease)
    };
    let mut shown = load.key();
    let wanted = load.asks("POST", &path).body(json!({"ttl_ms": TTL_MS}));
    let (mut events, lease) = open(&wanted).await;
    while !load.is_over() {
        let (name, left) = events.next().await;
        assert_eq!(name, "renewed", "{left}");
        load.tally.count("renewals by streams");
        if load.key() != shown {
            shown = load.key();
            let (newer, adopted) = open(&with(load.asks("POST", &path), &lease)).await;
            assert_eq!(fence(&adopted), fence(&lease));
            events = newer;
            load.tally.count("adoptions");
        }
    }
}

fn with(asked: HttpRequest, lease: &Value) -> HttpRequest {
    asked.with("lock-token", lease["token"].as_str().unwrap())
}

fn fence(lease: &Value) -> u64 {
    lease["fencing_token"].as_u64().unwrap()
}
