//! `POST /locks/{name}/hold`.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use latchgate::{
    lock::{HeldLease, Ttl},
    store::{
        StoreError, Unavailability,
        contract::{Acquisition, Loss, Renewal, RenewalTtl},
        parking::{News, Position},
    },
};

use super::{
    listener::Listener,
    scripted::{StoreCall, contention, held, queued},
    service::{Service, TOKEN, WITH_TOKEN, until},
};

/// A hold whose lock was free.
async fn granted(service: &Service) -> Listener {
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    listener.expect("granted").await;
    listener
}

/// A lease that is renewed every 0.1 s. It has long to go, so that it is not lost for the reason that
/// the machine is busy.
fn short() -> HeldLease {
    let ttl = Ttl::from_millis(300).unwrap();
    HeldLease { ttl, ..held() }
}

fn renews(service: &Service, answers: impl IntoIterator<Item = Result<Renewal, StoreError>>) {
    service.script.renew.lock().unwrap().extend(answers);
}

fn released(service: &Service) -> usize {
    let is_release = |asked: &StoreCall| matches!(asked, StoreCall::Release(_));
    service
        .script
        .asked()
        .into_iter()
        .filter(is_release)
        .count()
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
    insta::assert_json_snapshot!(lease, @r#"
    {
      "acquired_at": "2026-11-20T12:00:00.000Z",
      "expires_at": "2026-11-20T12:00:30.000Z",
      "expires_in_ms": 30000,
      "fencing_token": 42,
      "hold_expires_in_ms": 86400000,
      "metadata": {},
      "mode": "exclusive",
      "name": "a",
      "owner": null,
      "renew_after_ms": 10000,
      "slot": null,
      "token": null,
      "ttl_ms": 30000,
      "waited_ms": 0
    }
    "#);
}

#[tokio::test]
async fn a_held_lock_is_refused_before_there_is_a_stream() {
    let service = Service::start();
    service.script.acquires(Acquisition::Held(contention(0)));
    let answer = service.ask(Method::POST, "/locks/a/hold", &[], "").await;
    assert_eq!(answer.problem(), (423, "locked".to_owned()));
}

#[tokio::test]
async fn it_needs_a_caller_that_takes_event_streams() {
    let service = Service::start();
    let accept = |accept| service.ask(Method::POST, "/locks/a/hold", accept, "");
    let answer = accept(&[("accept", "text/html")]).await;
    assert_eq!(answer.problem(), (406, "not-acceptable".to_owned()));
    assert!(service.script.asked().is_empty());
    for fine in ["text/event-stream", "*/*", "text/*", "application/json"] {
        service.script.acquires(Acquisition::Held(contention(0)));
        let headers = [("accept", fine)];
        let answer = service
            .ask(Method::POST, "/locks/a/hold", &headers, "")
            .await;
        assert_eq!(answer.status, 423, "{fine}");
    }
}

#[tokio::test]
async fn it_never_goes_without_a_hold_limit() {
    let service = Service::start();
    let limit_of = async |body: &str| {
        Listener::hold(service.connect().await, "", body).await;
        let asked = service.script.asked();
        let attempt = asked.iter().rev().find_map(|asked| match asked {
            StoreCall::Acquire(attempt) => Some(attempt.clone()),
            _ => None,
        });
        attempt.unwrap().hold_limit.unwrap().as_millis()
    };
    assert_eq!(limit_of("").await, 86_400_000);
    assert_eq!(limit_of(r#"{"ttl_ms": 86400000}"#).await, 86_400_000);
    assert_eq!(limit_of(r#"{"max_hold_ms": 604800000}"#).await, 604_800_000);
}

#[tokio::test]
async fn it_tells_the_place_in_the_queue_and_then_the_grant() {
    let service = Service::start();
    service.script.acquires(queued(2));
    let body = r#"{"wait_ms": 20000}"#;
    let mut listener = Listener::hold(service.connect().await, "", body).await;
    let place = listener.expect("queued").await;
    assert_eq!(place, serde_json::json!({"position": 3, "waiters": 3}));
    assert_eq!(service.script.tell(&News::Granted(held())), 1);
    let lease = listener.expect("granted").await;
    assert_eq!(lease["fencing_token"], 42);
}

#[tokio::test]
async fn a_place_that_moves_is_told_again() {
    let service = Service::start();
    service.script.acquires(queued(2));
    let body = r#"{"wait_ms": 20000}"#;
    let mut listener = Listener::hold(service.connect().await, "", body).await;
    listener.expect("queued").await;
    let asked = service.script.asked();
    let [StoreCall::Acquire(attempt)] = &asked[..] else {
        panic!("{asked:?}");
    };
    let position = Position {
        ahead: 0,
        waiters: 7,
    };
    let parking = &service.script.parking;
    parking.publish_position(&attempt.token, position);
    let place = listener.expect("queued").await;
    assert_eq!(place, serde_json::json!({"position": 1, "waiters": 7}));
}

#[tokio::test]
async fn a_wait_that_runs_out_ends_it_with_the_same_problem_as_acquire() {
    let service = Service::start();
    service.script.acquires(queued(0));
    let id = "X-Request-Id: mine\r\n";
    let mut listener = Listener::hold(service.connect().await, id, r#"{"wait_ms": 40}"#).await;
    listener.expect("queued").await;
    let mut problem = listener.expect("refused").await;
    assert!(problem["waited_ms"].take().as_u64().unwrap() >= 40);
    problem["retry_after_ms"].take();
    insta::assert_json_snapshot!(problem, @r#"
    {
      "code": "locked",
      "detail": "Somebody else holds the lock, and the wait is over.",
      "holder_count": 1,
      "holders": [
        {
          "expires_in_ms": 30000,
          "fencing_token": 42,
          "foreign": false,
          "metadata": {},
          "mode": "exclusive",
          "owner": null,
          "slot": null
        }
      ],
      "request_id": "mine",
      "retry_after_ms": null,
      "status": 423,
      "title": "The lock is held",
      "type": "/problems/locked",
      "waited_ms": null,
      "waiters": 3
    }
    "#);
    listener.ends().await;
}

#[tokio::test]
async fn it_tells_each_renewal() {
    let service = Service::start();
    service.script.acquires(Acquisition::Granted(short()));
    renews(
        &service,
        [
            Ok(Renewal::Renewed(short(), Duration::ZERO)),
            Ok(Renewal::Renewed(short(), Duration::ZERO)),
        ],
    );
    let mut listener = granted(&service).await;
    for _ in 0..2 {
        let left = listener.expect("renewed").await;
        assert_eq!(left, serde_json::json!({"expires_in_ms": 30_000}));
    }
}

#[tokio::test]
async fn a_lease_that_somebody_ended_is_lost() {
    let service = Service::start();
    service.script.acquires(Acquisition::Granted(short()));
    renews(&service, [Ok(Renewal::Lost(Loss::HeldByAnother))]);
    let mut listener = granted(&service).await;
    let lost = listener.expect("lost").await;
    assert_eq!(lost, serde_json::json!({"reason": "ended"}));
    listener.ends().await;
}

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_in_time_is_lost() {
    let service = Service::start();
    service.script.acquires(Acquisition::Granted(HeldLease {
        expires_in: Duration::from_millis(300),
        ..short()
    }));
    let away = || Err(Unavailability::Connect("refused".to_owned()).into());
    renews(&service, (0..100).map(|_| away()));
    let mut listener = granted(&service).await;
    let lost = listener.expect("lost").await;
    assert_eq!(lost, serde_json::json!({"reason": "expired"}));
    listener.ends().await;
    until("it is released", || released(&service) == 1).await;
}

#[tokio::test]
async fn a_lease_that_is_released_with_its_token_ends_it_at_once() {
    let service = Service::start();
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    let lease = listener.expect("granted").await;
    let token = [("lock-token", lease["token"].as_str().unwrap())];
    let answer = service.ask(Method::DELETE, "/locks/a", &token, "").await;
    assert_eq!(answer.status, 204);
    assert_eq!(listener.expect("released").await, serde_json::json!({}));
    listener.ends().await;
    assert_eq!(released(&service), 1, "nobody releases it twice");
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
    until("it is released", || released(&service) == 1).await;
}

#[tokio::test]
async fn a_lost_lease_is_not_adopted() {
    let service = Service::start();
    renews(&service, [Ok(Renewal::Lost(Loss::Free))]);
    let answer = service
        .ask(Method::POST, "/locks/a/hold", WITH_TOKEN, "")
        .await;
    assert_eq!(answer.problem(), (410, "lease-lost".to_owned()));
    assert_eq!(answer.json()["held"], false);
}

#[tokio::test]
async fn whoever_adopts_a_lease_takes_it_from_an_older_stream() {
    let service = Service::start();
    let header = format!("Lock-Token: {TOKEN}\r\n");
    let mut older = Listener::hold(service.connect().await, &header, "").await;
    older.expect("granted").await;
    let mut newer = Listener::hold(service.connect().await, &header, "").await;
    newer.expect("granted").await;
    let lost = older.expect("lost").await;
    assert_eq!(lost, serde_json::json!({"reason": "adopted"}));
    older.ends().await;
    drop(older);
    assert_eq!(released(&service), 0, "the newer one holds it");
    drop(newer);
    until("it is released", || released(&service) == 1).await;
}

#[tokio::test]
async fn a_draining_gateway_ends_it_and_leaves_the_lease_for_another() {
    let service = Service::start();
    let mut listener = granted(&service).await;
    service.lifecycle.drain();
    assert_eq!(listener.expect("renewed").await["expires_in_ms"], 30_000);
    let left = listener.expect("draining").await["expires_in_ms"]
        .as_u64()
        .unwrap();
    assert!((20_000..30_000).contains(&left), "{left}");
    listener.ends().await;
    service
        .lifecycle
        .stop(Duration::from_mins(1))
        .await
        .unwrap();
    assert_eq!(released(&service) + service.script.given_back(), 0);
}

#[tokio::test]
async fn a_draining_gateway_ends_it_in_the_queue_too() {
    let service = Service::start();
    service.script.acquires(queued(0));
    let body = r#"{"wait_ms": 20000}"#;
    let mut listener = Listener::hold(service.connect().await, "", body).await;
    listener.expect("queued").await;
    service.lifecycle.drain();
    let left = listener.expect("draining").await;
    assert_eq!(left, serde_json::json!({"expires_in_ms": null}));
    listener.ends().await;
}

#[tokio::test]
async fn a_draining_gateway_begins_none_and_adopts_none() {
    let service = Service::start();
    service.lifecycle.drain();
    for headers in [&[], WITH_TOKEN] {
        let answer = service
            .ask(Method::POST, "/locks/a/hold", headers, "")
            .await;
        assert_eq!(answer.problem(), (503, "draining".to_owned()));
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn something_is_sent_every_ten_seconds() {
    let service = Service::start();
    let request = Request::post("/locks/a/hold").body(Body::from(r#"{"ttl_ms": 86400000}"#));
    let mut request = request.unwrap();
    let json = http::HeaderValue::from_static("application/json");
    request.headers_mut().insert("content-type", json);
    let mut body = service.stream(request).await;
    let mut frame = async || body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame().await, ":\n\n");
    assert!(frame().await.starts_with(b"event: granted\n"));
    for _ in 0..3 {
        let asked = tokio::time::Instant::now();
        assert_eq!(frame().await, ":\n\n");
        assert_eq!(asked.elapsed().as_secs(), 10);
    }
}
