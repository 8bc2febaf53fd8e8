//! A key that is taken back while somebody waits for a lock, or has it kept.

use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use latchgate::{
    auth::{Gate, KeysFile},
    config::Config,
    store::parking::News,
};

use super::{
    key::Key,
    scripted::{StoreCall, held, queued},
    service::{ApiResponse, JSON, Service, until},
};

fn replace(gate: &Gate, file: &str) {
    gate.replace(KeysFile::new("keys.toml").parse(file).unwrap());
}

fn request(key: &Key, path: &str, body: &'static str) -> http::Request<Body> {
    http::Request::post(format!("/locks/a{path}"))
        .header("authorization", &key.header)
        .header(JSON[0].0, JSON[0].1)
        .body(Body::from(body))
        .unwrap()
}

/// The same with an idempotency key, whose place in the queue would be kept.
fn keyed(key: &Key, path: &str) -> http::Request<Body> {
    let mut request = request(key, path, r#"{"wait_ms": 50000}"#);
    let value = http::HeaderValue::from_static("0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11");
    request.headers_mut().insert("idempotency-key", value);
    request
}

async fn read_until(stream: &mut Body, what: &str) -> String {
    let mut seen = String::new();
    while !seen.contains(what) {
        let frame = tokio::time::timeout(Duration::from_mins(10), stream.frame()).await;
        let Some(frame) = frame.unwrap_or_else(|_| panic!("no {what}: {seen}")) else {
            panic!("no {what}: {seen}");
        };
        seen += std::str::from_utf8(&frame.unwrap().into_data().unwrap()).unwrap();
    }
    seen
}

/// What takes the key back, in each way in which that can be done.
fn ways(key: &Key) -> [(&'static str, String); 4] {
    let other = Key::new().entry("other", "acquire = ['*']");
    let rotated = Key::new().entry("ci", "acquire = ['*']");
    [
        ("removed", other.clone()),
        ("rotated", rotated),
        (
            "permits less",
            key.entry("ci", "acquire = ['b']\nview = ['*']"),
        ),
        (
            "expired",
            key.entry("ci", "acquire = ['*']\nexpires_at = 2020-01-01T00:00:00Z"),
        ),
    ]
}

#[tokio::test]
async fn who_waits_is_refused_at_once_and_leaves_the_queue() {
    for way in 0..4 {
        let key = Key::new();
        let file = key.entry("ci", "acquire = ['*']");
        let (service, gate, _) = Service::with_gate(Config::default(), &file);
        service.script.acquires(queued(0));
        service.script.acquires(queued(1));
        let waiting = service.unread(keyed(&key, ""));
        let taken_back = async {
            let mut stream = service.stream(keyed(&key, "/hold")).await;
            read_until(&mut stream, "queued").await;
            replace(&gate, &ways(&key)[way].1);
            read_until(&mut stream, "refused").await
        };
        let (answer, last) = tokio::join!(waiting, taken_back);
        let answer = ApiResponse::read(answer).await;
        let way = ways(&key)[way].0;
        assert_eq!(answer.problem(), (401, "unauthorized".to_owned()), "{way}");
        assert!(last.contains("\"code\":\"unauthorized\""), "{way}: {last}");
        let left = |asked: &&StoreCall| matches!(asked, StoreCall::Leave(None));
        assert_eq!(
            service.script.asked().iter().filter(left).count(),
            2,
            "{way}"
        );
    }
}

#[tokio::test]
async fn a_change_that_leaves_the_key_as_it_is_disturbs_nobody() {
    let key = Key::new();
    let file = key.entry("ci", "acquire = ['*']");
    let (service, gate, _) = Service::with_gate(Config::default(), &file);
    service.script.acquires(queued(0));
    let waiting = service.unread(request(&key, "", r#"{"wait_ms": 50000}"#));
    let meanwhile = async {
        until("it waits", || service.script.asked().len() == 1).await;
        let (new, other) = (Key::new(), Key::new());
        let both = format!("'{}', '{}'", new.secret(), key.secret());
        let rotating = format!("[[key]]\nname = 'ci'\nsecrets = [{both}]\nacquire = ['a']\n");
        replace(&gate, &(rotating + &other.entry("other", "")));
        until("it is told", || {
            service.script.tell(&News::Granted(held())) == 1
        })
        .await;
    };
    let (answer, ()) = tokio::join!(waiting, meanwhile);
    assert_eq!(answer.status(), 201);
}

#[tokio::test]
async fn a_lock_that_was_granted_to_a_key_that_is_gone_is_given_back() {
    let key = Key::new();
    let file = key.entry("ci", "acquire = ['*']");
    let (service, gate, _) = Service::with_gate(Config::default(), &file);
    service.script.paused.set();
    let asking = service.unread(request(&key, "", ""));
    let taken_back = async {
        until("the store is asked", || service.script.asked().len() == 1).await;
        replace(&gate, &ways(&key)[0].1);
        service.script.paused.lift();
    };
    let (answer, ()) = tokio::join!(asking, taken_back);
    assert_eq!(answer.status(), 401);
    until("it is given back", || service.script.given_back() == 1).await;
}

#[tokio::test]
async fn a_held_lock_is_lost_and_left_to_its_ttl() {
    for way in 0..4 {
        let key = Key::new();
        let file = key.entry("ci", "acquire = ['*']");
        let (service, gate, _) = Service::with_gate(Config::default(), &file);
        let mut stream = service.stream(request(&key, "/hold", "")).await;
        read_until(&mut stream, "granted").await;
        let (name, file) = &ways(&key)[way];
        let taken_back = tokio::time::Instant::now();
        replace(&gate, file);
        let last = read_until(&mut stream, "event: lost").await;
        assert!(last.contains(r#"{"reason":"revoked"}"#), "{name}: {last}");
        // At once, and not when the next renewal is due.
        assert!(taken_back.elapsed() < Duration::from_secs(5), "{name}");
        assert!(stream.frame().await.is_none(), "{name}");
        drop(stream);
        // Whoever held it has time to stop: it is neither renewed nor released.
        let asked = service.script.asked();
        let only = |asked: &StoreCall| matches!(asked, StoreCall::Acquire(_));
        assert!(asked.iter().all(only), "{name}: {asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_is_not_renewed_after_its_key_has_expired() {
    let key = Key::new();
    let file = key.entry("ci", "acquire = ['*']\nexpires_at = 2026-11-20T12:00:15Z");
    let (service, _gate, clock) = Service::with_gate(Config::default(), &file);
    let mut stream = service.stream(request(&key, "/hold", "")).await;
    read_until(&mut stream, "granted").await;
    read_until(&mut stream, "renewed").await;
    clock.advance(Duration::from_secs(15));
    // Nobody has announced it: it is seen when the next renewal is due.
    let renewals = || {
        let asked = service.script.asked();
        asked
            .iter()
            .filter(|asked| matches!(asked, StoreCall::Renew(..)))
            .count()
    };
    let before = renewals();
    let last = read_until(&mut stream, "event: lost").await;
    assert!(last.contains("revoked"), "{last}");
    assert_eq!(renewals(), before);
}

#[tokio::test]
async fn a_key_that_is_gone_adopts_and_renews_nothing() {
    let key = Key::new();
    let file = key.entry("ci", "acquire = ['*']");
    let (service, gate, _) = Service::with_gate(Config::default(), &file);
    replace(&gate, &ways(&key)[0].1);
    let headers = [key.auth(), ("lock-token", super::service::TOKEN)];
    for (method, path) in [("PUT", "/renew"), ("POST", "/hold")] {
        let method = http::Method::from_bytes(method.as_bytes()).unwrap();
        let answer = service
            .ask(method, &format!("/locks/a{path}"), &headers, "")
            .await;
        assert_eq!(answer.status, 401, "{path}");
    }
    let released = service
        .ask(http::Method::DELETE, "/locks/a", &headers, "")
        .await;
    assert_eq!(released.status, 204, "the token is enough");
}
