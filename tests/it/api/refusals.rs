//! Requests that nobody handles, because their heads never come whole or well-formed.

use std::time::Duration;

use latchgate::config::{Config, Millis};
use tokio::time::Instant;

use super::{
    service::Service,
    socket::{answer, closed, send},
};

const INSPECT: &str = "GET /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn impatient() -> Service {
    let mut config = Config::default();
    config.http.header_timeout_ms = Millis(200);
    Service::with(config)
}

#[tokio::test]
async fn a_connection_ends_whose_client_does_not_finish_its_headers() {
    let service = impatient();
    let mut stream = service.connect().await;
    for begun in ["G", "GET /locks/a HTTP/1.1\r\nhos"] {
        let began = Instant::now();
        send(&mut stream, begun).await;
        assert_eq!(closed(&mut stream).await, "");
        assert!(began.elapsed() >= Duration::from_millis(150));
        stream = service.connect().await;
        // The second request on a connection is no different from the first.
        send(&mut stream, INSPECT).await;
        answer(&mut stream).await;
    }
}

#[tokio::test]
async fn what_is_no_http_gets_a_bare_status_and_the_end_of_the_connection() {
    let service = Service::start();
    let headers = |count: usize| {
        let lines = (1..count).map(|n| format!("x-{n}: y\r\n"));
        format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
            lines.collect::<String>()
        )
    };
    let target = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(65_535));
    for (request, status) in [
        (headers(101), "431"),
        (target, "414"),
        ("GET\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/7.0\r\n\r\n".to_owned(), "400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "400"),
    ] {
        let mut stream = service.connect().await;
        // Not only at the beginning of a connection.
        send(&mut stream, INSPECT).await;
        answer(&mut stream).await;
        send(&mut stream, &request).await;
        let refused = answer(&mut stream).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(refused.starts_with(&expected), "{refused}");
        assert!(refused.contains("connection: close\r\n"), "{refused}");
        assert_eq!(closed(&mut stream).await, "");
    }
    let mut stream = service.connect().await;
    send(&mut stream, &headers(100)).await;
    let taken = answer(&mut stream).await;
    assert!(taken.starts_with("HTTP/1.1 200 "), "{taken}");
}

#[tokio::test]
async fn nonsense_behind_a_request_that_is_handled_leaves_its_answer_alone() {
    let service = Service::start();
    let mut stream = service.connect().await;
    send(&mut stream, &format!("{INSPECT}nonsense\r\n\r\n")).await;
    let first = answer(&mut stream).await;
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    let refused = answer(&mut stream).await;
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    assert_eq!(closed(&mut stream).await, "");
}
