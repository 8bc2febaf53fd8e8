//! Locks over HTTPS with HTTP/1.1 and HTTP/2: requests that share a connection, connections that die, and the shutdown.

use std::{net::Ipv4Addr, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use h2::RecvStream;
use http::Method;
use latchgate::lifecycle::Lifecycle;
use rustix::process::Signal;
use serde_json::json;
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, sleep, timeout},
};

use super::fixture::{Certified, H2, head, piece, read, tls_connect};
use crate::support::{Cable, RedisServer};

#[test]
fn curl_takes_and_releases_a_lock_with_either_version() {
    let certified = Certified::start();
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let lease = certified.curl(&[flag, "-X", "POST"], "/locks/deploy");
        let found = (lease.status, lease.version.as_str());
        assert_eq!(found, (201, version), "{lease:?}");
        let held = certified.curl(&[flag, "-X", "POST"], "/locks/deploy");
        assert_eq!(held.status, 423, "{held:?}");
        let token = format!("Lock-Token: {}", lease.json()["token"].as_str().unwrap());
        let renewed = certified.curl(&[flag, "-X", "PUT", "-H", &token], "/locks/deploy/renew");
        assert_eq!(renewed.status, 200, "{renewed:?}");
        let released = certified.curl(&[flag, "-X", "DELETE", "-H", &token], "/locks/deploy");
        assert_eq!(released.status, 204, "{released:?}");
    }
    // A page is sent completely, in as many parts as it takes.
    let page = certified.curl(&["--http2"], "/docs/swagger-ui-bundle.js");
    assert_eq!((page.status, page.code), (200, Some(0)), "{}", page.err);
    let plain = certified.curl(&["--http1.1"], "/docs/swagger-ui-bundle.js");
    assert!(page.body == plain.body && page.body.len() > 1_000_000);
}

#[test]
fn the_greeting_says_https() {
    let certified = Certified::start();
    let greeting = &certified.gateway.greeting;
    assert_eq!(greeting.matches("https://").count(), 3, "{greeting}");
    assert!(!greeting.contains("http://"), "{greeting}");
}

#[tokio::test]
async fn many_wait_on_one_connection_and_a_renewal_passes_them() {
    let (_certified, mut h2) = H2::start().await;
    let (status, lease) = h2.acquire("a", "").await;
    assert_eq!(status, 201, "{lease}");
    let mut waiting = FuturesUnordered::new();
    for place in 1..=200 {
        let body = json!({"wait_ms": 30_000, "owner": place.to_string()}).to_string();
        let answer = h2.send(Method::POST, "/locks/a", &[], &body).await.unwrap();
        waiting.push(read(answer));
        if place % 50 == 0 {
            h2.until_queued("a", place).await;
        }
    }
    let mut token = lease["token"].as_str().unwrap().to_owned();
    let header = [("lock-token", &*token)];
    let renewed = h2.ask(Method::PUT, "/locks/a/renew", &header, "").await;
    assert_eq!(renewed.0, 200);
    for _ in 1..=200 {
        let header = [("lock-token", &*token)];
        let released = h2.ask(Method::DELETE, "/locks/a", &header, "").await;
        assert_eq!(released.0, 204);
        let (status, lease) = waiting.next().await.unwrap();
        assert_eq!(status, 201, "{lease}");
        lease["token"].as_str().unwrap().clone_into(&mut token);
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_the_queue() {
    let (_certified, mut h2) = H2::start().await;
    h2.acquire("a", "").await;
    let (given_up, kept) = (h2.wait("a").await, h2.wait("a").await);
    h2.until_queued("a", 2).await;
    // Dropping the answer sends RST_STREAM.
    drop(given_up);
    h2.until_queued("a", 1).await;
    // The other request on the same connection keeps waiting.
    let lease = h2.inspect("a").await;
    assert_eq!(lease["state"], "held");
    drop(kept);
    h2.until_queued("a", 0).await;
}

#[tokio::test]
async fn a_connection_that_breaks_takes_its_waiters_with_it() {
    let (certified, mut holder) = H2::start().await;
    holder.acquire("a", "").await;
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let waiter = if protocol == b"h2" {
            let mut waiter = H2::connect(&certified).await;
            let answer = waiter.wait("a").await;
            Box::new((waiter, answer)) as Box<dyn std::any::Any>
        } else {
            let address = certified.gateway.address;
            let authority = &certified.authority;
            let mut waiter = tls_connect(authority, address, &[protocol]).await;
            let request = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 17\r\n\
                           content-type: application/json\r\n\r\n{\"wait_ms\":50000}";
            waiter.write_all(request.as_bytes()).await.unwrap();
            Box::new(waiter)
        };
        holder.until_queued("a", 1).await;
        drop(waiter);
        holder.until_queued("a", 0).await;
    }
}

#[tokio::test]
async fn a_stream_holds_a_lock_until_it_is_reset_or_its_connection_ends() {
    let (certified, mut h2) = H2::start().await;
    for ends_connection in [false, true] {
        let mut holder = H2::connect(&certified).await;
        let mut events = hold(&mut holder, "a", r#"{"ttl_ms": 2000}"#).await;
        // Long enough for two renewals.
        until(&mut events, "event: renewed", 2).await;
        assert_eq!(h2.inspect("a").await["state"], "held");
        drop(events);
        if ends_connection {
            drop(holder);
        }
        h2.until_free("a").await;
    }
}

#[tokio::test]
async fn a_release_that_came_while_the_gateway_was_frozen_is_carried_out_although_it_was_given_up()
{
    let (certified, mut caller) = H2::start().await;
    let (_, lease) = caller.acquire("a", r#"{"ttl_ms": 3600000}"#).await;
    let token = lease["token"].as_str().unwrap();
    certified.gateway.signal(Signal::STOP);
    certified.gateway.stands_still();
    let headers = [("lock-token", token)];
    let answer = caller.send(Method::DELETE, "/locks/a", &headers, "").await;
    // The caller's time-out. RST_STREAM follows the request, and the gateway finds both when it runs again.
    for answer in [answer, caller.send(Method::GET, "/healthz", &[], "").await] {
        let waited = timeout(Duration::from_millis(300), answer.unwrap()).await;
        assert!(waited.is_err(), "the gateway is frozen");
    }
    certified.gateway.signal(Signal::CONT);
    caller.until_free("a").await;
}

#[tokio::test]
async fn a_release_that_is_reset_while_redis_is_down_is_carried_out_when_it_is_back() {
    let mut server = RedisServer::start_logged().await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let certified = Certified::set(&[("LATCHGATE_STORE", &url)]);
    let mut caller = H2::connect(&certified).await;
    let (_, lease) = caller.acquire("a", r#"{"ttl_ms": 3600000}"#).await;
    let headers = [("lock-token", lease["token"].as_str().unwrap())];
    server.kill();
    let answer = caller.send(Method::DELETE, "/locks/a", &headers, "").await;
    // The gateway reads the reset before it answers this request.
    drop(answer.unwrap());
    drop(caller.ask(Method::GET, "/healthz", &[], "").await);
    // Longer than a command waits for a server that accepts no connection.
    sleep(Duration::from_secs(2)).await;
    server.start_again().await;
    caller.until_free("a").await;
}

/// A client with a large window for the connection, and a small one for each stream.
fn roomy() -> h2::client::Builder {
    let mut builder = h2::client::Builder::new();
    builder.initial_connection_window_size(1 << 20);
    builder
}

/// Opens a hold, and reads only its `granted` event.
async fn hold(h2: &mut H2, lock: &str, body: &str) -> RecvStream {
    let path = format!("/locks/{lock}/hold");
    let answer = h2.send(Method::POST, &path, &[], body).await.unwrap();
    let answer = head(answer).await;
    assert_eq!(answer.status(), 200);
    let mut events = answer.into_body();
    until(&mut events, "event: granted", 1).await;
    events
}

/// Reads events until a text has come this many times.
async fn until(events: &mut RecvStream, what: &str, times: usize) {
    let mut text = String::new();
    while text.matches(what).count() < times {
        let piece = piece(events).await.unwrap_or_else(|| panic!("{text}"));
        text += std::str::from_utf8(&piece).unwrap();
    }
}

#[tokio::test]
async fn a_request_that_is_reset_ends_and_the_others_on_its_connection_go_on() {
    let certified = Certified::start();
    let mut h2 = H2::connect_with(&certified, &roomy()).await;
    let given_up = hold(&mut h2, "a", r#"{"ttl_ms": 2000}"#).await;
    let mut held = hold(&mut h2, "b", r#"{"ttl_ms": 2000}"#).await;
    let waiting = h2.wait("a").await;
    h2.until_queued("a", 1).await;
    drop(given_up);
    let (status, lease) = read(waiting).await;
    assert_eq!(status, 201, "{lease}");
    until(&mut held, "event: renewed", 2).await;
}

#[tokio::test]
async fn a_dead_line_costs_all_its_requests_within_two_pings() {
    let certified = Certified::start();
    let lifecycle = Lifecycle::new();
    let line = Cable::to(certified.gateway.address.port(), &lifecycle).await;
    let address = (Ipv4Addr::LOCALHOST, line.port()).into();
    let mut h2 = H2::connect_by(&certified, address, &roomy()).await;
    let mut observer = H2::connect(&certified).await;
    let mut held = hold(&mut h2, "held", r#"{"ttl_ms": 60000}"#).await;
    let (_, lease) = observer.acquire("other", r#"{"ttl_ms": 3600000}"#).await;
    assert!(lease["token"].is_string(), "{lease}");
    let waiting = h2.wait("other").await;
    observer.until_queued("other", 1).await;
    // A connection that answers its pings stays open, for as long as several pings take.
    let alive = until(&mut held, "event: renewed", 1);
    assert!(timeout(Duration::from_secs(12), alive).await.is_err());
    observer.until_queued("other", 1).await;

    line.cut();
    let died = Instant::now();
    observer.until_free("held").await;
    observer.until_queued("other", 0).await;
    // Five seconds between two pings, and five more for the answer.
    assert!(died.elapsed() < Duration::from_secs(30));
    drop(waiting);
}

#[tokio::test]
async fn a_connection_takes_no_more_requests_ends_what_it_has_and_a_new_one_is_served() {
    let mut certified = Certified::set(&[
        ("LATCHGATE_SHUTDOWN_DELAY_MS", "3000"),
        ("LATCHGATE_SHUTDOWN_GRACE_MS", "60000"),
    ]);
    let (mut idle, mut holder) = (H2::connect(&certified).await, H2::connect(&certified).await);
    idle.inspect("a").await;
    let held = holder.send(Method::POST, "/locks/a/hold", &[], "").await;
    let mut events = head(held.unwrap()).await.into_body();
    certified.gateway.signal(Signal::TERM);
    // The client gets a GOAWAY, and has no open request.
    idle.ended().await;
    let log = certified.gateway.log();
    assert!(!log.contains("draining"), "{log}");
    // A load balancer that does not know of the shutdown yet still sends requests here.
    let mut late = H2::connect(&certified).await;
    assert_eq!(late.inspect("a").await["state"], "held");
    assert_eq!(late.acquire("b", r#"{"ttl_ms": 100}"#).await.0, 201);
    let mut text = String::new();
    while let Some(piece) = piece(&mut events).await {
        text += std::str::from_utf8(&piece).unwrap();
    }
    assert!(text.contains("event: draining"), "{text}");
    // While this test thread waits for the gateway, its clients cannot close their connections.
    holder.ended().await;
    late.ended().await;
    let status = certified.gateway.wait();
    assert!(status.success(), "{status}: {}", certified.gateway.log());
}
