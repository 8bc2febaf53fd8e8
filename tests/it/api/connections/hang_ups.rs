//! Callers that hang up: just before their answers are sent, and after releases that the store has not answered.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpStream as StdTcpStream},
    thread,
};

use crate::{api::prelude::*, support::full};

/// How a caller hangs up.
#[derive(Debug, Clone, Copy)]
enum HangUp {
    Fin,
    Rst,
}

/// Callers hang up at moments spread over this time after the request, or over twice the latency of an answer if that
/// is longer.
const WITHIN: Duration = Duration::from_millis(4);
/// How many answers are measured for the latency.
const MEASURED: u32 = 20;
/// Most leases that may stay held. A hang-up between the gateway's check of the caller and its write is not noticed:
/// one in two hundred on an idle machine, more if the gateway loses its processor in between. Without the check it is
/// one in ten.
const HANG_UPS: u32 = 300;
const MOST_LEFT: u32 = 6;

fn connect(to: SocketAddr) -> StdTcpStream {
    let stream = StdTcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    stream
}

/// Hangs up. Answers whether no byte of the answer had arrived.
fn hang_up(mut stream: StdTcpStream, how: HangUp) -> bool {
    match how {
        // After the shutdown, this end answers further data with a reset, as a closed socket does. Data that arrived
        // before can still be read.
        HangUp::Fin => {
            stream.shutdown(Shutdown::Both).unwrap();
            !matches!(stream.read(&mut [0]), Ok(1))
        }
        HangUp::Rst => {
            stream.set_nonblocking(true).unwrap();
            let nothing = stream.peek(&mut [0]);
            let nothing = nothing.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            nothing
        }
    }
}

fn state(of: &str, at: SocketAddr) -> String {
    let mut stream = connect(at);
    let request =
        format!("GET /locks/{of} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let body: Value = serde_json::from_str(body).unwrap();
    body["state"].as_str().unwrap().to_owned()
}

fn acquire(name: &str, at: SocketAddr) -> StdTcpStream {
    let body = r#"{"ttl_ms": 3600000}"#;
    let length = body.len();
    let head = format!("POST /locks/{name} HTTP/1.1\r\nhost: localhost\r\n");
    let kind = format!("content-type: application/json\r\ncontent-length: {length}");
    let mut stream = connect(at);
    let request = format!("{head}{kind}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// The median latency of an answer.
fn latency(at: SocketAddr, how: HangUp) -> Duration {
    let measure = |number| {
        let began = Instant::now();
        let mut stream = acquire(&format!("measured-{how:?}-{number}"), at);
        stream.read_exact(&mut [0]).unwrap();
        began.elapsed()
    };
    let mut measured: Vec<_> = (0..MEASURED).map(measure).collect();
    measured.sort();
    measured[measured.len() / 2]
}

/// How many of the callers that hung up without an answer left their locks held, once the number is within the bound;
/// and how many callers hung up without an answer.
fn left(at: SocketAddr, how: HangUp, hang_ups: u32) -> (u32, u32) {
    let within = WITHIN.max(2 * latency(at, how));
    let mut unanswered = Vec::new();
    for number in 0..hang_ups {
        let name = format!("{how:?}-{number}");
        let stream = acquire(&name, at);
        thread::sleep(within * number / hang_ups);
        if hang_up(stream, how) {
            unanswered.push(name);
        }
    }
    let count = u32::try_from(unanswered.len()).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        unanswered.retain(|name| state(name, at) == "held");
        if u32::try_from(unanswered.len()).unwrap() <= allowed(hang_ups) {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    (u32::try_from(unanswered.len()).unwrap(), count)
}

fn allowed(hang_ups: u32) -> u32 {
    if full() { hang_ups / 200 } else { MOST_LEFT }
}

#[tokio::test]
async fn who_hangs_up_around_the_answer_leaves_no_lock() {
    let server = RedisServer::start().await;
    let gateway = Gateway::start_with(Setup::on(&server));
    let hang_ups = if full() { 1_500 } else { HANG_UPS };
    for how in [HangUp::Fin, HangUp::Rst] {
        let (left, of) = left(gateway.address, how, hang_ups);
        assert!(of > 0, "{how:?}: every caller was answered");
        assert!(
            left <= allowed(hang_ups),
            "{how:?}: {left} of {of} have left their locks held"
        );
    }
}

/// Room for this many requests, and for as many abandoned releases.
const ROOM: usize = 64;
/// How many releases a caller without key and lease abandons.
const GIVEN_UP: usize = 1_000;

fn counted(text: &str, sample: &str) -> usize {
    let line = text.lines().find_map(|line| line.strip_prefix(sample));
    line.unwrap().trim().parse().unwrap()
}

/// A gateway with room for `room` requests, and for as many releases.
fn with_room(room: usize) -> Service {
    let mut config = Config::default();
    config.http.max_concurrent_requests = room;
    config.http.reserved_requests = room;
    Service::with(config)
}

fn release() -> String {
    format!("DELETE /locks/a HTTP/1.1\r\nHost: localhost\r\nLock-Token: {TOKEN}\r\n\r\n")
}

/// An abandoned release takes room only while it is carried out, not while it waits for its turn.
#[tokio::test]
async fn they_are_carried_out_one_by_one_where_there_is_room_for_one() {
    const RELEASES: usize = 10;
    let service = with_room(1);
    let address = service.listen().await;
    service.script.paused.set();
    // The gateway runs on this thread: when it accepts these connections, their ends have already arrived.
    let _streams: Vec<_> = (0..RELEASES)
        .map(|_| {
            let mut stream = StdTcpStream::connect(address).unwrap();
            stream.write_all(release().as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream
        })
        .collect();
    service.is_asked(1).await;
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
    let asked = || service.script.released();
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
    let mut recipient = TcpStream::connect(address).await.unwrap();
    send(&mut recipient, &renew).await;
    until("it is asked to renew", || {
        matches!(service.script.asked().last(), Some(StoreCall::Renew(..)))
    })
    .await;
    service.script.paused.lift();
    answered(&mut holder, 204).await;
    answered(&mut recipient, 200).await;
    // The store got all releases, and they are carried out without their callers.
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

fn away() -> Result<Release, StoreError> {
    Err(Unavailability::Connect("away".to_owned()).into())
}

#[tokio::test]
async fn of_one_whose_caller_was_told_that_nothing_happened_nothing_follows() {
    let service = Service::start();
    let address = service.listen().await;
    service.script.release.push(away());
    let mut caller = TcpStream::connect(address).await.unwrap();
    asked(&mut caller, &release(), 503).await;
    drop(caller);
    // Ten times the first pause before a repeated release.
    sleep(Duration::from_secs(1)).await;
    assert_eq!(service.script.released(), 1);
}

/// A Redis server with an append-only file, and a gateway on it with a short command timeout.
async fn on_redis() -> (RedisServer, Gateway) {
    let server = RedisServer::start_logged().await;
    let setup = Setup::on(&server)
        .with("LATCHGATE_REDIS_COMMAND_TIMEOUT_MS", "200")
        .with("LATCHGATE_REDIS_DEADLINE_MS", "500");
    (server, Gateway::start_with(setup))
}

/// Acquires two locks and a group, sends their releases, and hangs up at once.
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

/// Waits until the first try of every release has ended without an answer of the store.
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
