//! A lease whose caller has gone is given back (clause 8), over real sockets.

use std::time::Duration;

use latchgate::{
    config::{Config, Millis},
    store::{StoreError, Uncertainty},
};
use tokio::net::{TcpListener, TcpStream};

use super::{
    lines::Lines,
    scripted::StoreCall,
    service::{Service, until},
    socket::{answer, reset, send},
};

const ACQUIRE: &str = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
const WITH_KEY: &str = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\n\
     idempotency-key: 0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11\r\n\r\n";

/// Sends a request to a store that does not answer, and waits until the store has it.
async fn in_flight(service: &Service, request: &str) -> TcpStream {
    service.script.paused.set();
    let mut stream = service.connect().await;
    send(&mut stream, request).await;
    until("the store was asked", || !service.script.asked().is_empty()).await;
    stream
}

/// Lets the store answer, once the gateway has seen that the caller is gone.
async fn answer_nobody(service: &Service, lines: &Lines) {
    until("the gateway saw it", || lines.read().contains("hung up")).await;
    service.script.paused.lift();
}

fn attempt(service: &Service) -> latchgate::lock::TokenHash {
    match service.script.asked().as_slice() {
        [StoreCall::Acquire(attempt), ..] => attempt.token,
        asked => panic!("an attempt first: {asked:?}"),
    }
}

#[tokio::test]
async fn a_caller_that_closes_before_the_answer_leaves_no_lease() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let service = Service::start();
    let stream = in_flight(&service, ACQUIRE).await;
    drop(stream);
    answer_nobody(&service, &lines).await;
    until("the lease is given back", || {
        service.script.given_back() == 1
    })
    .await;
    let token = attempt(&service);
    assert!(matches!(service.script.asked()[..], [_, StoreCall::GiveBack(hash)] if hash == token));
}

#[tokio::test]
async fn a_caller_that_resets_before_the_answer_leaves_no_lease() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let service = Service::start();
    let stream = in_flight(&service, ACQUIRE).await;
    reset(stream);
    answer_nobody(&service, &lines).await;
    until("the lease is given back", || {
        service.script.given_back() == 1
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_gets_its_answer_keeps_its_lease() {
    let service = Service::start();
    let mut stream = service.connect().await;
    send(&mut stream, ACQUIRE).await;
    let granted = answer(&mut stream).await;
    assert!(granted.starts_with("HTTP/1.1 201 "), "{granted}");
    // The connection answers once more and then ends: whatever would have been given back with the
    // answer or with the connection has been by then.
    send(
        &mut stream,
        "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    )
    .await;
    answer(&mut stream).await;
    drop(stream);
    service
        .lifecycle
        .stop(Duration::from_mins(1))
        .await
        .unwrap();
    assert_eq!(service.script.given_back(), 0);
}

#[tokio::test]
async fn an_answer_that_the_connection_never_took_is_given_back() {
    let service = Service::start();
    let request = http::Request::post("/locks/a").body(axum::body::Body::empty());
    let answer = service.unread(request.unwrap()).await;
    assert_eq!(answer.status(), 201);
    assert_eq!(service.script.given_back(), 0);
    drop(answer);
    until("the lease is given back", || {
        service.script.given_back() == 1
    })
    .await;
}

#[tokio::test]
async fn with_a_key_the_lease_waits_for_its_caller_and_is_then_given_back() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let mut config = Config::default();
    config.limits.reconnect_grace_ms = Millis(400);
    let service = Service::with(config);
    let stream = in_flight(&service, WITH_KEY).await;
    let began = tokio::time::Instant::now();
    drop(stream);
    answer_nobody(&service, &lines).await;
    until("the lease is given back", || {
        service.script.given_back() == 1
    })
    .await;
    assert!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn an_answer_that_never_came_is_given_back_though_its_caller_is_there() {
    let service = Service::start();
    let unknown = StoreError::Indeterminate(Uncertainty::TimedOut);
    service
        .script
        .acquire
        .lock()
        .unwrap()
        .push_back(Err(unknown));
    let mut stream = service.connect().await;
    send(&mut stream, ACQUIRE).await;
    let answer = answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    until("the attempt is given back", || {
        service.script.given_back() == 1
    })
    .await;
}

#[tokio::test]
async fn a_release_is_carried_out_though_its_caller_has_gone() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let service = Service::start();
    let token = super::service::TOKEN;
    let release =
        format!("DELETE /locks/a HTTP/1.1\r\nhost: localhost\r\nlock-token: {token}\r\n\r\n");
    let stream = in_flight(&service, &release).await;
    drop(stream);
    // Were the command dropped with its caller, its answer would stay in the script.
    service
        .script
        .release
        .lock()
        .unwrap()
        .push_back(Ok(latchgate::store::contract::Release::Released));
    answer_nobody(&service, &lines).await;
    until("the command has been carried out", || {
        service.script.release.lock().unwrap().is_empty()
    })
    .await;
}

/// The connection is accepted when its end is there already, as it is for a gateway that is busy.
#[tokio::test]
async fn a_release_that_came_in_one_piece_with_the_end_of_its_connection_is_carried_out() {
    let token = super::service::TOKEN;
    let head =
        "POST /locks/a/release HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let body = format!("{{\"token\":\"{token}\"}}");
    let requests = [
        format!("DELETE /locks/a HTTP/1.1\r\nhost: localhost\r\nlock-token: {token}\r\n\r\n"),
        format!("{head}content-length: {}\r\n\r\n{body}", body.len()),
    ];
    for request in &requests {
        for is_reset in [false, true] {
            let service = Service::start();
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let mut caller = TcpStream::connect(address).await.unwrap();
            send(&mut caller, request).await;
            if is_reset {
                reset(caller);
            } else {
                drop(caller);
            }
            service.listen_on(listener);
            until(&format!("it is released, reset: {is_reset}"), || {
                let asked = service.script.asked();
                asked.iter().any(|it| matches!(it, StoreCall::Release(_)))
            })
            .await;
        }
    }
}

#[tokio::test]
async fn leases_of_callers_that_are_gone_are_given_back_before_the_process_ends() {
    let lines = Lines::default();
    let _guard = lines.collect();
    let service = Service::start();
    let stream = in_flight(&service, ACQUIRE).await;
    service.lifecycle.drain();
    drop(stream);
    answer_nobody(&service, &lines).await;
    until("the lease is given back", || {
        service.script.given_back() == 1
    })
    .await;
    service
        .lifecycle
        .stop(Duration::from_mins(1))
        .await
        .unwrap();
}
