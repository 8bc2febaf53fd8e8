//! Requests that nobody handles, because their heads never come whole or well-formed.

use latchgate::config::{Config, Millis};
use serde_json::Value;
use tokio::net::TcpStream;

use super::{
    service::{Service, until},
    socket::{answer, closed, send},
};

const INSPECT: &str = "GET /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// The last answer of a connection.
struct Refused {
    status: String,
    problem: Value,
}

fn impatient() -> Service {
    let mut config = Config::default();
    config.http.header_timeout_ms = Millis(200);
    Service::with(config)
}

async fn refused(stream: &mut TcpStream) -> Refused {
    let answer = closed(stream).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name}in {head}"))
    };
    let status = head.lines().next().unwrap().replace("HTTP/1.1 ", "");
    let problem = serde_json::from_str::<Value>(body).unwrap();
    assert_eq!(header("content-type: "), "application/problem+json");
    assert_eq!(header("content-length: "), body.len().to_string());
    assert_eq!(header("connection: "), "close");
    assert_eq!(header("cache-control: "), "no-store");
    assert_eq!(header("x-request-id: "), problem["request_id"]);
    assert_eq!(status[..3], problem["status"].to_string());
    Refused { status, problem }
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_headers_is_told_408() {
    let service = impatient();
    let mut stream = service.connect().await;
    for begun in ["G", "GET /locks/a HTTP/1.1\r\nhos"] {
        send(&mut stream, begun).await;
        let refused = refused(&mut stream).await;
        assert_eq!(refused.status, "408 Request Timeout");
        assert_eq!(refused.problem["code"], "request-timeout");
        stream = service.connect().await;
        // The second request on a connection is no different from the first.
        send(&mut stream, INSPECT).await;
        answer(&mut stream).await;
    }
}

#[tokio::test]
async fn a_request_that_begins_while_another_is_handled_has_no_longer_than_others() {
    let service = impatient();
    service.script.paused.set();
    let mut stream = service.connect().await;
    send(&mut stream, INSPECT).await;
    until("the store is asked", || !service.script.asked().is_empty()).await;
    send(&mut stream, "GET /locks/b HT").await;
    service.script.paused.lift();
    let first = answer(&mut stream).await;
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    assert_eq!(refused(&mut stream).await.status, "408 Request Timeout");
}

#[tokio::test]
async fn what_does_not_reach_a_route_is_refused_with_a_problem_and_the_end_of_the_connection() {
    let service = Service::start();
    let headers = |count: usize| {
        let lines = (1..count).map(|n| format!("x-{n}: y\r\n"));
        format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
            lines.collect::<String>()
        )
    };
    let target = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(65_535));
    for (request, status, code) in [
        (headers(101), "431", "headers-too-large"),
        (target, "414", "uri-too-long"),
        ("GET\r\n\r\n".to_owned(), "400", "invalid-request"),
        (
            "GET / HTTP/1.1\r\na b: c\r\n\r\n".to_owned(),
            "400",
            "invalid-request",
        ),
        (
            "GET / HTTP/7.0\r\n\r\n".to_owned(),
            "400",
            "invalid-request",
        ),
    ] {
        let mut stream = service.connect().await;
        // Not only at the beginning of a connection.
        send(&mut stream, INSPECT).await;
        answer(&mut stream).await;
        send(&mut stream, &request).await;
        let refused = refused(&mut stream).await;
        assert_eq!(&refused.status[..3], status);
        assert_eq!(refused.problem["code"], code);
    }
    let mut stream = service.connect().await;
    send(&mut stream, &headers(100)).await;
    let taken = answer(&mut stream).await;
    assert!(taken.starts_with("HTTP/1.1 200 "), "{taken}");
}

#[tokio::test]
async fn a_refusal_points_to_its_page_below_the_base_path() {
    let mut config = Config::default();
    config.http.base_path = "/gate".to_owned();
    let service = Service::with(config);
    let mut stream = service.connect().await;
    send(&mut stream, "nonsense\r\n\r\n").await;
    let refused = refused(&mut stream).await;
    assert_eq!(refused.problem["type"], "/gate/problems/invalid-request");
}

#[tokio::test]
async fn nonsense_behind_a_request_that_is_handled_leaves_its_answer_alone() {
    let service = Service::start();
    let mut stream = service.connect().await;
    send(&mut stream, &format!("{INSPECT}nonsense\r\n\r\n")).await;
    let first = answer(&mut stream).await;
    assert!(first.starts_with("HTTP/1.1 200 "), "{first}");
    assert_eq!(refused(&mut stream).await.problem["status"], 400);
}
