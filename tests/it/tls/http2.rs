//! Locks over HTTPS, with HTTP/1.1 and with HTTP/2.

use std::time::Duration;

use futures_util::{StreamExt, stream::FuturesUnordered};
use http::Method;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::support::{RedisServer, eventually, gateway::Setup};

use super::{
    certified::Certified,
    h2_client::{H2, head, piece, read},
};

#[test]
fn curl_takes_and_releases_a_lock_with_either_version() {
    let certified = Certified::start();
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let lease = certified.curl(&[flag, "-X", "POST"], "/locks/deploy");
        assert_eq!(
            (lease.status, lease.version.as_str()),
            (201, version),
            "{lease:?}"
        );
        let held = certified.curl(&[flag, "-X", "POST"], "/locks/deploy");
        assert_eq!(held.status, 423, "{held:?}");
        let token = format!("Lock-Token: {}", lease.json()["token"].as_str().unwrap());
        let renewed = certified.curl(&[flag, "-X", "PUT", "-H", &token], "/locks/deploy/renew");
        assert_eq!(renewed.status, 200, "{renewed:?}");
        let released = certified.curl(&[flag, "-X", "DELETE", "-H", &token], "/locks/deploy");
        assert_eq!(released.status, 204, "{released:?}");
    }
    // A page without a problem is sent whole, in as many pieces as it takes.
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
    let certified = Certified::start();
    let mut h2 = H2::connect(&certified).await;
    let (status, lease) = h2.acquire("a", "").await;
    assert_eq!(status, 201, "{lease}");
    let mut waiting = FuturesUnordered::new();
    for place in 1..=200 {
        let body = json!({"wait_ms": 30_000, "owner": place.to_string()}).to_string();
        let answer = h2.send(Method::POST, "/locks/a", &[], &body).await.unwrap();
        waiting.push(read(answer));
        if place % 50 == 0 {
            queued(&mut h2, "a", place).await;
        }
    }
    let mut token = lease["token"].as_str().unwrap().to_owned();
    let renewed = h2
        .ask(Method::PUT, "/locks/a/renew", &[("lock-token", &token)], "")
        .await;
    assert_eq!(renewed.0, 200);
    for _ in 1..=200 {
        let released = h2
            .ask(Method::DELETE, "/locks/a", &[("lock-token", &token)], "")
            .await;
        assert_eq!(released.0, 204);
        let (status, lease) = waiting.next().await.unwrap();
        assert_eq!(status, 201, "{lease}");
        lease["token"].as_str().unwrap().clone_into(&mut token);
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_the_queue() {
    let certified = Certified::start();
    let mut h2 = H2::connect(&certified).await;
    h2.acquire("a", "").await;
    let wait = r#"{"wait_ms": 50000}"#;
    let given_up = h2.send(Method::POST, "/locks/a", &[], wait).await.unwrap();
    let kept = h2.send(Method::POST, "/locks/a", &[], wait).await.unwrap();
    queued(&mut h2, "a", 2).await;
    // RST_STREAM.
    drop(given_up);
    queued(&mut h2, "a", 1).await;
    // The other one is on the same connection, and waits on.
    let lease = h2.inspect("a").await;
    assert_eq!(lease["state"], "held");
    drop(kept);
    queued(&mut h2, "a", 0).await;
}

#[tokio::test]
async fn a_connection_that_breaks_takes_its_waiters_with_it() {
    let certified = Certified::start();
    let mut holder = H2::connect(&certified).await;
    holder.acquire("a", "").await;
    for protocol in [&b"h2"[..], b"http/1.1"] {
        let waiter = if protocol == b"h2" {
            let mut waiter = H2::connect(&certified).await;
            let wait = r#"{"wait_ms": 50000}"#;
            let answer = waiter.send(Method::POST, "/locks/a", &[], wait).await;
            let answer = answer.unwrap();
            Box::new((waiter, answer)) as Box<dyn std::any::Any>
        } else {
            let address = certified.gateway.address;
            let authority = &certified.authority;
            let mut waiter = super::tls_client::connect(authority, address, &[protocol]).await;
            let request = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 17\r\n\
                           content-type: application/json\r\n\r\n{\"wait_ms\":50000}";
            tokio::io::AsyncWriteExt::write_all(&mut waiter, request.as_bytes())
                .await
                .unwrap();
            Box::new(waiter)
        };
        queued(&mut holder, "a", 1).await;
        drop(waiter);
        queued(&mut holder, "a", 0).await;
    }
}

#[tokio::test]
async fn a_stream_holds_a_lock_until_it_is_reset_or_its_connection_ends() {
    let certified = Certified::start();
    let mut h2 = H2::connect(&certified).await;
    let held = |h2: &H2| {
        let mut h2 = h2.clone();
        async move { h2.inspect("a").await["state"] == "held" }
    };
    for ends_connection in [false, true] {
        let mut holder = H2::connect(&certified).await;
        let answer = holder
            .send(Method::POST, "/locks/a/hold", &[], r#"{"ttl_ms": 2000}"#)
            .await;
        let answer = head(answer.unwrap()).await;
        assert_eq!(answer.status(), 200);
        let mut events = answer.into_body();
        let mut text = String::new();
        // Long enough to be renewed.
        while text.matches("event: renewed").count() < 2 {
            let piece = piece(&mut events).await.unwrap();
            text += std::str::from_utf8(&piece).unwrap();
        }
        assert!(held(&h2).await, "{text}");
        drop(events);
        if ends_connection {
            drop(holder);
        }
        eventually("the lock is free", || async {
            (!held(&h2).await).then_some(())
        })
        .await;
    }
    drop(h2.inspect("a").await);
}

#[tokio::test]
async fn a_release_that_came_while_the_gateway_was_frozen_is_carried_out_although_it_was_given_up()
{
    let certified = Certified::start();
    let mut caller = H2::connect(&certified).await;
    let (_, lease) = caller.acquire("a", r#"{"ttl_ms": 3600000}"#).await;
    let token = lease["token"].as_str().unwrap();
    certified.gateway.signal(Signal::STOP);
    certified.gateway.stands_still();
    let headers = [("lock-token", token)];
    let answer = caller.send(Method::DELETE, "/locks/a", &headers, "").await;
    // Its time-out. RST_STREAM comes behind the request, and both are there when the gateway goes on.
    for answer in [answer, caller.send(Method::GET, "/healthz", &[], "").await] {
        let waited = timeout(Duration::from_millis(300), answer.unwrap()).await;
        assert!(waited.is_err(), "the gateway is frozen");
    }
    certified.gateway.signal(Signal::CONT);
    eventually("the lock is free", || {
        let mut h2 = caller.clone();
        async move { (h2.inspect("a").await["state"] == "free").then_some(()) }
    })
    .await;
}

#[tokio::test]
async fn a_release_that_is_reset_while_redis_is_down_is_carried_out_when_it_is_back() {
    let mut server =
        RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let certified = Certified::start_with(|_| Setup::default().with("LATCHGATE_STORE", &url));
    let mut caller = H2::connect(&certified).await;
    let (_, lease) = caller.acquire("a", r#"{"ttl_ms": 3600000}"#).await;
    let headers = [("lock-token", lease["token"].as_str().unwrap())];
    server.kill();
    let answer = caller.send(Method::DELETE, "/locks/a", &headers, "").await;
    // The reset is read before this answer is sent.
    drop(answer.unwrap());
    drop(caller.ask(Method::GET, "/healthz", &[], "").await);
    // Longer than a command waits for a server that takes no connection.
    sleep(Duration::from_secs(2)).await;
    server.start_again().await;
    eventually("the lock is free", || {
        let mut h2 = caller.clone();
        async move { (h2.inspect("a").await["state"] == "free").then_some(()) }
    })
    .await;
}

/// Waits until so many wait for a lock.
async fn queued(h2: &mut H2, lock: &str, waiters: usize) {
    let asked = h2.clone();
    eventually("the queue is as long as it should be", || {
        let mut h2 = asked.clone();
        async move {
            let shown = h2.inspect(lock).await;
            (shown["waiter_count"] == waiters).then_some(())
        }
    })
    .await;
}
