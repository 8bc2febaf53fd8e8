//! `POST /locks/{name}/hold`: its events, its connection, and a holder whose machine disappears.

use std::process::Stdio;

use latchgate::store::parking::Position;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use crate::{api::prelude::*, support::spawn};

/// A hold on a lock that was free.
async fn granted(service: &Service) -> Listener {
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    listener.expect("granted").await;
    listener
}

/// A lease that is renewed every 0.1 s. Its expiry is far away, so that it does not end because the machine is busy.
fn short() -> HeldLease {
    let ttl = Ttl::from_millis(300).unwrap();
    HeldLease { ttl, ..held() }
}

fn renews(service: &Service, answers: impl IntoIterator<Item = Result<Renewal, StoreError>>) {
    service.script.renew.extend(answers);
}

#[tokio::test]
async fn it_is_a_stream_of_events_that_nobody_on_the_way_may_keep() {
    let service = Service::start();
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    let head = &listener.head;
    assert!(head.starts_with("http/1.1 200 ok\r\n"), "{head}");
    for header in [
        "content-type: text/event-stream",
        "cache-control: no-store",
        "x-accel-buffering: no",
        "transfer-encoding: chunked",
    ] {
        assert!(head.contains(&format!("\r\n{header}\r\n")), "{head}");
    }
    assert_eq!(
        listener.chunk().await.unwrap(),
        ":\n\n",
        "so that proxies pass on the head"
    );
    let mut lease = listener.expect("granted").await;
    assert_eq!(lease["token"].take().as_str().unwrap().len(), 43);
    let limited = json!({"token": null, "hold_expires_in_ms": 86_400_000});
    assert_eq!(lease, lease_view(limited));
}

#[tokio::test]
async fn it_needs_a_caller_that_takes_event_streams() {
    let service = Service::start();
    let accept = |accept| service.call("POST /locks/a/hold", accept);
    let answer = accept(&[("accept", "text/html")]).await;
    assert_eq!(answer.problem(), (406, "not-acceptable"));
    assert!(service.script.asked().is_empty());
    for fine in ["text/event-stream", "*/*", "text/*", "application/json"] {
        service.script.acquire.ok(Acquisition::Held(contention(0)));
        let headers = [("accept", fine)];
        let answer = service.call("POST /locks/a/hold", &headers).await;
        assert_eq!(answer.status, 423, "{fine}");
    }
}

#[tokio::test]
async fn it_never_goes_without_a_hold_limit() {
    let service = Service::start();
    let limit_of = async |body: &str| {
        Listener::hold(service.connect().await, "", body).await;
        service
            .script
            .attempt()
            .terms
            .hold_limit()
            .unwrap()
            .as_millis()
    };
    assert_eq!(limit_of("").await, 86_400_000);
    assert_eq!(limit_of(r#"{"ttl_ms": 86400000}"#).await, 86_400_000);
    assert_eq!(limit_of(r#"{"max_hold_ms": 604800000}"#).await, 604_800_000);
}

#[tokio::test]
async fn a_wait_that_runs_out_ends_it_with_the_same_problem_as_acquire() {
    let service = Service::start();
    service.script.acquire.ok(queued(0));
    let id = "X-Request-Id: mine\r\n";
    let mut listener = Listener::hold(service.connect().await, id, r#"{"wait_ms": 40}"#).await;
    listener.expect("queued").await;
    let mut problem = listener.expect("refused").await;
    assert!(problem["waited_ms"].take().as_u64().unwrap() >= 40);
    problem["retry_after_ms"].take();
    let expected = json!({
        "code": "locked", "detail": "Another caller holds the lock, and the wait is over.",
        "holder_count": 1, "holders": [contender_view(json!({}))], "request_id": "mine",
        "retry_after_ms": null, "status": 423, "title": "The lock is held",
        "type": "/problems/locked", "waited_ms": null, "waiters": 3,
    });
    assert_eq!(problem, expected);
    listener.ends().await;
}

#[tokio::test]
async fn a_place_that_moves_is_told_again_and_then_the_grant() {
    let service = Service::start();
    service.script.acquire.ok(queued(2));
    let body = r#"{"wait_ms": 20000}"#;
    let mut listener = Listener::hold(service.connect().await, "", body).await;
    let place = listener.expect("queued").await;
    assert_eq!(place, json!({"position": 3, "waiters": 3}));
    let position = Position {
        ahead: 0,
        waiters: 7,
    };
    let parking = &service.script.parking;
    parking.publish_position(&service.script.attempt().token, position);
    let place = listener.expect("queued").await;
    assert_eq!(place, json!({"position": 1, "waiters": 7}));
    assert_eq!(service.script.tell(&News::Granted(held())), 1);
    assert_eq!(listener.expect("granted").await["fencing_token"], 42);
}

#[tokio::test]
async fn it_tells_each_renewal_and_that_somebody_ended_the_lease() {
    let service = Service::start();
    service.script.acquire.ok(Acquisition::Granted(short()));
    let renewed = || Ok(Renewal::Renewed(short(), Duration::ZERO));
    let lost = Ok(Renewal::Lost(Loss::HeldByAnother));
    service.script.renew.extend([renewed(), renewed(), lost]);
    let mut listener = granted(&service).await;
    for _ in 0..2 {
        let left = listener.expect("renewed").await;
        assert_eq!(left, json!({"expires_in_ms": 30_000}));
    }
    assert_eq!(listener.expect("lost").await, json!({"reason": "ended"}));
    listener.ends().await;
}

#[tokio::test]
async fn the_lock_is_released_when_the_caller_closes_or_resets_the_connection() {
    for leave in [drop, reset] {
        let service = Service::start();
        leave(granted(&service).await.into_stream());
        until("it is released", || service.script.released() == 1).await;
    }
}

#[tokio::test]
async fn a_living_lease_is_adopted_with_its_token_and_its_fence() {
    let service = Service::start();
    let header = format!("Lock-Token: {TOKEN}\r\n");
    let mut listener = Listener::hold(service.connect().await, &header, "").await;
    let lease = listener.expect("granted").await;
    assert_eq!(lease["token"], TOKEN);
    assert_eq!(lease["fencing_token"], 42);
    let asked = service.script.asked();
    assert!(
        matches!(
            asked[..],
            [StoreCall::Renew(_, RenewalTtl { asked: None, .. })]
        ),
        "{asked:?}"
    );
    drop(listener);
    until("it is released", || service.script.released() == 1).await;
}

#[tokio::test]
async fn a_lost_lease_is_not_adopted() {
    let service = Service::start();
    renews(&service, [Ok(Renewal::Lost(Loss::Free))]);
    let answer = service.call("POST /locks/a/hold", WITH_TOKEN).await;
    assert_eq!(answer.problem(), (410, "lease-lost"));
    assert_eq!(answer["held"], false);
}

#[tokio::test]
async fn a_draining_gateway_ends_it_in_the_queue_too() {
    let service = Service::start();
    service.script.acquire.ok(queued(0));
    let body = r#"{"wait_ms": 20000}"#;
    let mut listener = Listener::hold(service.connect().await, "", body).await;
    listener.expect("queued").await;
    service.lifecycle.drain();
    let left = listener.expect("draining").await;
    assert_eq!(left, json!({"expires_in_ms": null}));
    listener.ends().await;
}

#[tokio::test(start_paused = true)]
async fn something_is_sent_every_ten_seconds() {
    let service = Service::start();
    let body = r#"{"ttl_ms": 86400000}"#;
    let mut body = service.stream("POST /locks/a/hold", JSON, body).await;
    let mut frame = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame().await, ":\n\n");
    assert!(frame().await.starts_with(b"event: granted\n"));
    for _ in 0..3 {
        let asked = Instant::now();
        assert_eq!(frame().await, ":\n\n");
        assert_eq!(asked.elapsed().as_secs(), 10);
    }
}

#[tokio::test]
async fn the_lock_is_released_although_the_caller_had_sent_more_behind_its_request() {
    let service = Service::start();
    let stream = service.connect().await;
    let request = "POST /locks/a/hold HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n";
    stream.try_write(request.as_bytes()).unwrap();
    service.is_asked(1).await;
    drop(stream);
    let hung_up = Instant::now();
    until("it is released", || {
        service.script.released() == 1 || service.script.given_back() == 1
    })
    .await;
    // The gateway would write the next message after ten seconds. Only then would a write fail, so the hang-up was
    // noticed without one.
    let took = hung_up.elapsed();
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[tokio::test]
async fn the_queue_is_left_when_the_caller_hangs_up() {
    let service = Service::start();
    service.script.acquire.ok(queued(0));
    let body = r#"{"wait_ms": 20000}"#;
    let mut listener = Listener::hold(service.connect().await, "", body).await;
    listener.expect("queued").await;
    drop(listener);
    until("it has left", || {
        let left = |asked: &StoreCall| matches!(asked, StoreCall::Leave(_));
        service.script.count(left) == 1
    })
    .await;
}

#[tokio::test]
async fn a_lease_that_was_granted_as_the_caller_hung_up_is_given_back() {
    let service = Service::start();
    service.script.paused.set();
    let stream = service.connect().await;
    let request = "POST /locks/a/hold HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.try_write(request.as_bytes()).unwrap();
    service.is_asked(1).await;
    drop(stream);
    notices(&service).await;
    service.script.paused.lift();
    service.gives_back(1).await;
}

#[tokio::test]
async fn the_connection_of_a_hold_that_has_ended_serves_the_next_request() {
    let service = Service::start();
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    let lease = listener.expect("granted").await;
    let token = [("lock-token", lease["token"].as_str().unwrap())];
    service.call("DELETE /locks/a", &token).await;
    assert_eq!(listener.expect("released").await, json!({}));
    assert_eq!(service.script.released(), 1, "nobody releases it twice");
    listener.ends().await;
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let next = Listener::ask(listener.into_stream(), request).await;
    assert!(
        next.head.starts_with("http/1.1 200 ok\r\n"),
        "{}",
        next.head
    );
}

#[tokio::test]
async fn a_connection_over_which_a_lock_is_held_is_not_idle() {
    let mut config = Config::default();
    config.http.idle_timeout_ms = Millis(400);
    config.http.header_timeout_ms = Millis(400);
    let service = Service::with(config);
    let mut listener = granted(&service).await;
    sleep(Duration::from_millis(1_200)).await;
    assert_eq!(service.script.released(), 0);
    service.lifecycle.drain();
    listener.expect("renewed").await;
    listener.expect("draining").await;
    listener.ends().await;
    let mut stream = listener.into_stream();
    // Afterwards it is.
    assert_eq!(closed(&mut stream).await, "");
}

/// Starts a holder process that stops reading after the grant. Returns when it has done so.
async fn silent_holder(service: &Service) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/api/locks/silent.py");
    let port = service.listen().await.port().to_string();
    let mut holder = Command::from(spawn::command("python3"))
        .args([script, &port])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("this test needs python3: apt-get install python3");
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap();
    assert_eq!(line.as_deref(), Some("silent"));
    holder
}

#[tokio::test]
async fn it_does_not_hold_the_lock_for_much_longer_than_its_ttl() {
    let service = Service::start();
    let ttl = Ttl::from_millis(1_000).unwrap();
    // The expiry of the lease is far away, so that the hold does not end for this reason on a busy machine.
    let lease = HeldLease { ttl, ..held() };
    service
        .script
        .acquire
        .ok(Acquisition::Granted(lease.clone()));
    let renewed = || Ok(Renewal::Renewed(lease.clone(), Duration::ZERO));
    let renewals = std::iter::repeat_with(renewed).take(100);
    service.script.renew.extend(renewals);
    let _holder = silent_holder(&service).await;
    let silent = Instant::now();
    until("it is released", || service.script.released() > 0).await;
    // The hold ends one TTL after the next event that is not acknowledged, plus the kernel's pause between two
    // retransmissions: far earlier than the ten seconds of this test. With the defaults of the kernel it would take a
    // quarter of an hour.
    assert!(
        silent.elapsed() > Duration::from_millis(500),
        "not for another reason"
    );
}
