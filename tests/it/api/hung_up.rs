//! Releases whose callers hang up: one after the other while the store does not answer, or during an outage of it.

use std::{
    io::Write,
    net::{Shutdown, TcpStream as StdTcpStream},
    time::Duration,
};

use latchgate::{
    config::Config,
    store::{StoreError, Unavailability, Uncertainty, contract::Release},
};
use serde_json::json;
use tokio::{net::TcpStream, time::sleep};

use super::{
    scripted::StoreCall,
    service::{Service, TOKEN, until},
    socket::{answer, send},
};
use crate::support::{
    Connection, HttpRequest, RedisServer, eventually,
    gateway::{Gateway, Setup},
};

/// Room for requests, and as much again for releases.
const ROOM: usize = 64;
/// How many somebody gives up who has no key and no lease.
const GIVEN_UP: usize = 1_000;

fn counted(text: &str, sample: &str) -> usize {
    let line = text.lines().find_map(|line| line.strip_prefix(sample));
    line.unwrap().trim().parse().unwrap()
}

/// A gateway with room for so many requests, and for as many releases besides.
fn with_room(room: usize) -> Service {
    let mut config = Config::default();
    config.http.max_concurrent_requests = room;
    config.http.reserved_requests = room;
    Service::with(config)
}

fn release() -> String {
    format!("DELETE /locks/a HTTP/1.1\r\nHost: localhost\r\nLock-Token: {TOKEN}\r\n\r\n")
}

/// Those that wait for their turn take no room: it is taken when one is carried out.
#[tokio::test]
async fn they_are_carried_out_one_by_one_where_there_is_room_for_one() {
    const RELEASES: usize = 10;
    let service = with_room(1);
    let address = service.listen().await;
    service.script.paused.set();
    // The gateway runs on this thread: when it comes to them, each has come with its end.
    let _streams: Vec<_> = (0..RELEASES)
        .map(|_| {
            let mut stream = StdTcpStream::connect(address).unwrap();
            stream.write_all(release().as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream
        })
        .collect();
    until("the store is asked", || !service.script.asked().is_empty()).await;
    service.script.paused.lift();
    let scrape = || async { service.get("/metrics").await.body };
    let carried = r#"latchgate_abandoned_releases_total{outcome="carried-out"}"#;
    let released = r#"latchgate_releases_total{outcome="released"}"#;
    eventually("all are released", || async {
        (counted(&scrape().await, released) == RELEASES).then_some(())
    })
    .await;
    assert_eq!(counted(&scrape().await, carried), RELEASES);
}

#[tokio::test]
async fn they_leave_room_to_a_holder_and_are_counted() {
    let service = with_room(ROOM);
    let address = service.listen().await;
    service.script.paused.set();
    let release = release();
    let asked = || {
        let asked = service.script.asked();
        asked
            .iter()
            .filter(|it| matches!(it, StoreCall::Release(_)))
            .count()
    };
    for given_up in 1..=GIVEN_UP {
        let mut stream = TcpStream::connect(address).await.unwrap();
        send(&mut stream, &release).await;
        until("the store is asked", || asked() == given_up).await;
        drop(stream);
    }
    let mut holder = TcpStream::connect(address).await.unwrap();
    send(&mut holder, &release).await;
    until("the store is asked", || asked() > GIVEN_UP).await;
    let renew =
        format!("PUT /locks/a/renew HTTP/1.1\r\nHost: localhost\r\nLock-Token: {TOKEN}\r\n\r\n");
    let mut keeper = TcpStream::connect(address).await.unwrap();
    send(&mut keeper, &renew).await;
    until("it is asked to renew", || {
        matches!(service.script.asked().last(), Some(StoreCall::Renew(..)))
    })
    .await;
    service.script.paused.lift();
    assert!(answer(&mut holder).await.starts_with("HTTP/1.1 204 "));
    assert!(answer(&mut keeper).await.starts_with("HTTP/1.1 200 "));
    // All of them were asked of the store, and are carried out without anybody.
    let releases = r#"latchgate_releases_total{outcome="released"}"#;
    let dropped = r#"latchgate_abandoned_releases_total{outcome="dropped"}"#;
    let carried = r#"latchgate_abandoned_releases_total{outcome="carried-out"}"#;
    let scrape = || async { service.get("/metrics").await.body };
    eventually("all are released", || async {
        (counted(&scrape().await, releases) == GIVEN_UP + 1).then_some(())
    })
    .await;
    let text = scrape().await;
    assert_eq!(counted(&text, carried), ROOM / 2);
    assert_eq!(counted(&text, dropped), GIVEN_UP - ROOM / 2);
}

fn releases(service: &Service) -> usize {
    let asked = service.script.asked();
    let releases = asked
        .iter()
        .filter(|it| matches!(it, StoreCall::Release(_)));
    releases.count()
}

fn away() -> Result<Release, StoreError> {
    Err(Unavailability::Connect("away".to_owned()).into())
}

#[tokio::test]
async fn one_that_the_store_does_not_answer_is_tried_again_until_it_does() {
    let service = Service::start();
    let address = service.listen().await;
    service.script.paused.set();
    let answers = [away(), Err(Uncertainty::TimedOut.into()), away()];
    service.script.release.lock().unwrap().extend(answers);
    let mut caller = TcpStream::connect(address).await.unwrap();
    send(&mut caller, &release()).await;
    until("the store is asked", || releases(&service) == 1).await;
    drop(caller);
    let carried = r#"latchgate_abandoned_releases_total{outcome="carried-out"}"#;
    let released = r#"latchgate_releases_total{outcome="released"}"#;
    let scrape = || async { service.get("/metrics").await.body };
    eventually("the hang-up is noticed", || async {
        (counted(&scrape().await, carried) == 1).then_some(())
    })
    .await;
    service.script.paused.lift();
    eventually("it is released", || async {
        (counted(&scrape().await, released) == 1).then_some(())
    })
    .await;
    assert_eq!(releases(&service), 4);
}

#[tokio::test]
async fn of_one_whose_caller_was_told_that_nothing_happened_nothing_follows() {
    let service = Service::start();
    let address = service.listen().await;
    service.script.release.lock().unwrap().push_back(away());
    let mut caller = TcpStream::connect(address).await.unwrap();
    send(&mut caller, &release()).await;
    assert!(answer(&mut caller).await.starts_with("HTTP/1.1 503 "));
    drop(caller);
    // Ten times as long as the first pause before another try.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(releases(&service), 1);
}

/// A Redis with an append-only file, and a gateway on it that gives a command up soon.
async fn on_redis() -> (RedisServer, Gateway) {
    let server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let setup = Setup::default()
        .with("LATCHGATE_STORE", &url)
        .with("LATCHGATE_REDIS_COMMAND_TIMEOUT_MS", "200")
        .with("LATCHGATE_REDIS_DEADLINE_MS", "500");
    (server, Gateway::start_with(setup))
}

/// Takes a lock, a second one, and a group; sends their releases and hangs up at once.
async fn release_and_hang_up(gateway: &Gateway, outage: impl FnOnce()) -> [String; 4] {
    let connect = async || Connection::new(TcpStream::connect(gateway.address).await.unwrap());
    let mut caller = connect().await;
    let mut acquire = async |path: &str, body| {
        let asked = HttpRequest::new("POST", path.to_owned()).body(body);
        let (status, lease) = caller.ask(&asked).await.unwrap();
        assert_eq!(status, 201, "{lease}");
        lease["token"].as_str().unwrap().to_owned()
    };
    let ttl = json!({"ttl_ms": 3_600_000});
    let by_delete = acquire("/locks/one", ttl.clone()).await;
    let by_post = acquire("/locks/two", ttl).await;
    let group = json!({"names": ["three", "four"], "ttl_ms": 3_600_000});
    let of_group = acquire("/locks", group).await;
    outage();
    for (method, path, token) in [
        ("DELETE", "/locks/one", by_delete),
        ("POST", "/locks/two/release", by_post),
        ("DELETE", "/locks?names=three,four", of_group),
    ] {
        let asked = HttpRequest::new(method, path.to_owned()).with("Lock-Token", &token);
        connect().await.send(&asked).await.unwrap();
    }
    ["one", "two", "three", "four"].map(|name| format!("/locks/{name}"))
}

/// Waits until every first try of a release has ended without an answer of the store.
async fn unanswered(gateway: &Gateway, outcome: &str) {
    let sample = format!("latchgate_releases_total{{outcome=\"{outcome}\"}}");
    eventually("the store has answered none", || async {
        let mut caller = TcpStream::connect(gateway.address).await.unwrap();
        send(
            &mut caller,
            "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        )
        .await;
        let answer = answer(&mut caller).await;
        (counted(&answer, &sample) >= 4).then_some(())
    })
    .await;
}

async fn all_free(gateway: &Gateway, locks: &[String]) {
    for lock in locks {
        eventually("the lock is free", || async {
            let mut caller = Connection::new(TcpStream::connect(gateway.address).await.unwrap());
            let asked = HttpRequest::new("GET", lock.clone());
            let (_, shown) = caller.ask(&asked).await.unwrap();
            (shown["state"] == "free").then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn while_redis_is_down_they_are_carried_out_as_soon_as_it_is_back() {
    let (mut server, gateway) = on_redis().await;
    let locks = release_and_hang_up(&gateway, || server.kill()).await;
    unanswered(&gateway, "unavailable").await;
    server.start_again().await;
    all_free(&gateway, &locks).await;
}
