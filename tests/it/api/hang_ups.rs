//! Callers that hang up at any moment around their answers, at real gateways.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    thread,
    time::Duration,
};

use crate::support::{
    RedisServer, full,
    gateway::{Gateway, Setup},
};

/// How a caller hangs up.
#[derive(Debug, Clone, Copy)]
enum HangUp {
    Fin,
    Rst,
}

/// The moments at which callers hang up are spread over this time from the request on, or over twice the time that
/// an answer takes where that is longer.
const WITHIN: Duration = Duration::from_millis(4);
/// How many answers are waited for to know how long they take.
const MEASURED: u32 = 20;
/// What is left between the look for the caller and the write: one in two hundred on a machine that does nothing
/// else, and more where the gateway loses its processor in between. Without a look it is every tenth.
const HANG_UPS: u32 = 300;
const MOST_LEFT: u32 = 6;

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    stream
}

/// Whether nothing of an answer had come when the caller hung up.
fn hang_up(mut stream: TcpStream, how: HangUp) -> bool {
    match how {
        // Told of more data, this end answers with a reset from here on, as if it were closed; what came before
        // can still be read.
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
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    body["state"].as_str().unwrap().to_owned()
}

fn acquire(name: &str, at: SocketAddr) -> TcpStream {
    let body = r#"{"ttl_ms": 3600000}"#;
    let length = body.len();
    let head = format!("POST /locks/{name} HTTP/1.1\r\nhost: localhost\r\n");
    let kind = format!("content-type: application/json\r\ncontent-length: {length}");
    let mut stream = connect(at);
    let request = format!("{head}{kind}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

/// How long an answer takes, in the middle.
fn latency(at: SocketAddr, how: HangUp) -> Duration {
    let measure = |number| {
        let began = tokio::time::Instant::now();
        let mut stream = acquire(&format!("measured-{how:?}-{number}"), at);
        stream.read_exact(&mut [0]).unwrap();
        began.elapsed()
    };
    let mut measured: Vec<_> = (0..MEASURED).map(measure).collect();
    measured.sort();
    measured[measured.len() / 2]
}

/// How many of those that hung up without an answer have left their locks held, once these are few enough, and
/// how many there were.
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
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while tokio::time::Instant::now() < deadline {
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

fn check(store: &str, gateway: &Gateway) {
    let hang_ups = if full() { 1_500 } else { HANG_UPS };
    for how in [HangUp::Fin, HangUp::Rst] {
        let (left, of) = left(gateway.address, how, hang_ups);
        assert!(of > 0, "{store}, {how:?}: every caller was answered");
        assert!(
            left <= allowed(hang_ups),
            "{store}, {how:?}: {left} of {of} have left their locks held"
        );
    }
}

#[test]
fn who_hangs_up_around_the_answer_leaves_no_lock_on_the_embedded_store() {
    check("embedded", &Gateway::start());
}

#[tokio::test]
async fn who_hangs_up_around_the_answer_leaves_no_lock_on_redis() {
    let server = RedisServer::start().await;
    let url = format!("redis://127.0.0.1:{}", server.port());
    let gateway = Gateway::start_with(Setup::default().with("LATCHGATE_STORE", &url));
    check("redis", &gateway);
}
