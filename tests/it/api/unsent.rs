//! A grant whose answer never left its connection is given back; one that left, or may yet, is not.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::connect_with_little_room;

use super::{
    scripted::StoreCall,
    service::{Service, until},
    socket::{answer, reset, send},
};

const ACQUIRE: &str = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
const WITH_KEY: &str = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\n\
     idempotency-key: 0b2f6a4e-5a0c-4d53-9d0c-1f5d7a7f4a11\r\n\r\n";
/// Its answer is longer than what fits into a connection that nobody reads.
const LONG: &str = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
const INSPECT: &str = "GET /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
const SHORT: &str = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn grants(service: &Service) -> usize {
    let asked = service.script.asked();
    let is_acquire = |asked: &&StoreCall| matches!(asked, StoreCall::Acquire(_));
    asked.iter().filter(is_acquire).count()
}

/// Sends an acquire behind so many requests whose answers are not read. When this comes back its answer has been
/// written: the gateway runs on this thread, and its store answers at once.
async fn behind_unread(service: &Service, unread: usize, acquire: &str) -> TcpStream {
    let mut stream = connect_with_little_room(service.listen().await).await;
    let requests = [LONG.repeat(unread).as_str(), acquire].concat();
    send(&mut stream, &requests).await;
    until("the lock is granted", || grants(service) == 1).await;
    stream
}

/// How often a lease was given back when nothing is left to do.
async fn given_back_at_the_end(service: &Service) -> usize {
    let stopped = service.lifecycle.stop(Duration::from_mins(1)).await;
    stopped.unwrap();
    service.script.given_back()
}

async fn read_to_the_end(stream: &mut TcpStream) -> String {
    let mut rest = Vec::new();
    let reading = stream.read_to_end(&mut rest);
    timeout(Duration::from_mins(1), reading)
        .await
        .expect("the connection ends")
        .unwrap();
    String::from_utf8(rest).unwrap()
}

#[tokio::test]
async fn it_is_given_back_when_its_caller_resets_the_connection_behind_unread_answers() {
    for unread in 1..=5 {
        for acquire in [ACQUIRE, WITH_KEY] {
            let mut config = latchgate::config::Config::default();
            config.limits.reconnect_grace_ms = latchgate::config::Millis(100);
            let service = Service::with(config);
            let stream = behind_unread(&service, unread, acquire).await;
            assert_eq!(service.script.given_back(), 0, "its caller may read on");
            reset(stream);
            until(&format!("it is given back behind {unread}"), || {
                service.script.given_back() == 1
            })
            .await;
        }
    }
}

#[tokio::test]
async fn requests_that_came_with_the_acquire_do_not_show_that_its_answer_was_read() {
    let service = Service::start();
    let acquire = [ACQUIRE, SHORT, SHORT].concat();
    let mut stream = behind_unread(&service, 3, &acquire).await;
    // Nor does one that comes later from a caller that does not wait for answers.
    send(&mut stream, INSPECT).await;
    until("it is answered", || {
        let asked = service.script.asked();
        asked.iter().any(|it| matches!(it, StoreCall::Inspect))
    })
    .await;
    reset(stream);
    until("it is given back", || service.script.given_back() == 1).await;
}

#[tokio::test]
async fn each_of_many_that_never_left_is_given_back() {
    const GRANTS: usize = 20;
    let service = Service::start();
    let mut stream = connect_with_little_room(service.listen().await).await;
    let requests = [LONG, &ACQUIRE.repeat(GRANTS)].concat();
    send(&mut stream, &requests).await;
    until("the locks are granted", || grants(&service) == GRANTS).await;
    reset(stream);
    until("they are given back", || {
        service.script.given_back() == GRANTS
    })
    .await;
}

#[tokio::test]
async fn a_caller_that_reads_its_answer_and_then_resets_keeps_its_lease() {
    for acquire in [ACQUIRE, WITH_KEY] {
        let service = Service::start();
        let mut stream = service.connect().await;
        send(&mut stream, acquire).await;
        let granted = answer(&mut stream).await;
        assert!(granted.starts_with("HTTP/1.1 201 "), "{granted}");
        reset(stream);
        assert_eq!(given_back_at_the_end(&service).await, 0);
    }
}

#[tokio::test]
async fn a_caller_that_reads_all_before_it_resets_keeps_its_lease_though_it_did_not_wait() {
    let service = Service::start();
    let mut stream = behind_unread(&service, 2, ACQUIRE).await;
    for _ in 0..2 {
        answer(&mut stream).await;
    }
    let granted = answer(&mut stream).await;
    assert!(granted.starts_with("HTTP/1.1 201 "), "{granted}");
    reset(stream);
    assert_eq!(given_back_at_the_end(&service).await, 0);
}

#[tokio::test]
async fn a_caller_that_half_closes_after_it_has_read_keeps_its_lease() {
    let service = Service::start();
    let mut stream = service.connect().await;
    send(&mut stream, ACQUIRE).await;
    let granted = answer(&mut stream).await;
    assert!(granted.starts_with("HTTP/1.1 201 "), "{granted}");
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_the_end(&mut stream).await, "");
    assert_eq!(given_back_at_the_end(&service).await, 0);
}

/// The gateway closes while the grant is still on its way, and the kernel sends it all the same.
#[tokio::test]
async fn a_caller_that_half_closes_and_then_reads_keeps_its_lease() {
    let service = Service::start();
    let mut stream = behind_unread(&service, 2, ACQUIRE).await;
    stream.shutdown().await.unwrap();
    let read = read_to_the_end(&mut stream).await;
    assert_eq!(read.matches("HTTP/1.1 201 ").count(), 1);
    assert_eq!(given_back_at_the_end(&service).await, 0);
}

/// Its end is there when the answer is about to be written, and the requests behind it have been read: HTTP does
/// not look for an end then.
#[tokio::test]
async fn it_is_given_back_when_its_caller_has_closed_before_it_is_written() {
    let service = Service::start();
    service.script.paused.set();
    let mut stream = service.connect().await;
    send(&mut stream, &[ACQUIRE, SHORT].concat()).await;
    until("the store is asked", || grants(&service) == 1).await;
    drop(stream);
    service.script.paused.lift();
    until("it is given back", || service.script.given_back() == 1).await;
}
