//! What the connection of a hold has to do with the lock.

use std::time::Duration;

use http::Method;
use latchgate::config::{Config, Millis};
use tokio::time::Instant;

use super::{
    listener::{Listener, notices},
    scripted::{StoreCall, queued},
    service::{Service, until},
    socket::closed,
};

/// A hold whose lock was free.
async fn granted(service: &Service) -> Listener {
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    listener.expect("granted").await;
    listener
}

fn asked(service: &Service, what: impl Fn(&StoreCall) -> bool) -> usize {
    let asked = service.script.asked();
    asked.iter().filter(|asked| what(asked)).count()
}

fn released(service: &Service) -> usize {
    asked(service, |asked| matches!(asked, StoreCall::Release(_)))
}

fn left(service: &Service) -> usize {
    asked(service, |asked| matches!(asked, StoreCall::Leave(_)))
}

#[tokio::test]
async fn the_lock_is_released_when_the_caller_closes_the_connection() {
    let service = Service::start();
    drop(granted(&service).await);
    until("it is released", || released(&service) == 1).await;
}

#[tokio::test]
async fn the_lock_is_released_when_the_caller_resets_the_connection() {
    let service = Service::start();
    let stream = granted(&service).await.into_stream();
    stream.set_zero_linger().unwrap();
    drop(stream);
    until("it is released", || released(&service) == 1).await;
}

#[tokio::test]
async fn the_lock_is_released_although_the_caller_had_sent_more_behind_its_request() {
    let service = Service::start();
    let stream = service.connect().await;
    let request = "POST /locks/a/hold HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n";
    stream.try_write(request.as_bytes()).unwrap();
    until("the store is asked", || !service.script.asked().is_empty()).await;
    drop(stream);
    let hung_up = Instant::now();
    until("it is released", || {
        released(&service) == 1 || service.script.given_back() == 1
    })
    .await;
    // The first message that is not in reply to anything comes after ten seconds: only then would a write fail.
    let took = hung_up.elapsed();
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[tokio::test]
async fn the_queue_is_left_when_the_caller_hangs_up() {
    let service = Service::start();
    service.script.acquires(queued(0));
    let body = r#"{"wait_ms": 20000}"#;
    let mut listener = Listener::hold(service.connect().await, "", body).await;
    listener.expect("queued").await;
    drop(listener);
    until("it has left", || left(&service) == 1).await;
}

#[tokio::test]
async fn a_lease_that_was_granted_as_the_caller_hung_up_is_given_back() {
    let service = Service::start();
    service.script.paused.set();
    let stream = service.connect().await;
    let request = "POST /locks/a/hold HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.try_write(request.as_bytes()).unwrap();
    until("the store is asked", || !service.script.asked().is_empty()).await;
    drop(stream);
    notices(&service).await;
    service.script.paused.lift();
    until("it is given back", || service.script.given_back() == 1).await;
}

#[tokio::test]
async fn the_connection_of_a_hold_that_has_ended_serves_the_next_request() {
    let service = Service::start();
    let mut listener = Listener::hold(service.connect().await, "", "").await;
    let lease = listener.expect("granted").await;
    let token = [("lock-token", lease["token"].as_str().unwrap())];
    service.ask(Method::DELETE, "/locks/a", &token, "").await;
    listener.expect("released").await;
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
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    assert_eq!(released(&service), 0);
    service.lifecycle.drain();
    listener.expect("renewed").await;
    listener.expect("draining").await;
    listener.ends().await;
    let mut stream = listener.into_stream();
    // Afterwards it is.
    assert_eq!(closed(&mut stream).await, "");
}
