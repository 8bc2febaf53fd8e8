//! Callers over TLS that leave: releases that arrive together with the end of the connection, and a lease whose answer
//! was read.

use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::fixture::{Certified, H2, tls_connect};
use crate::support::until;

/// How the connection ends after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The connection is closed.
    Close,
    /// The client sends GOAWAY, and closes the connection.
    GoAway,
}

/// The first bytes of a client: the preface, and settings without a change.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS_HEARD: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";
const GO_AWAY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A frame of a stream. The flags say whether the headers or the stream end with it.
pub(super) fn frame_of(stream: u32, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A frame of the first stream.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame_of(1, kind, flags, payload)
}

/// A header block with these fields, without compression.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            assert!(text.len() < 127, "its length is one byte");
            block.push(u8::try_from(text.len()).unwrap());
            block.extend(text.bytes());
        }
    }
    block
}

fn headers(fields: &[(&str, &str)], is_all: bool) -> Vec<u8> {
    frame(1, if is_all { 0x05 } else { 0x04 }, &block(fields))
}

/// The fields that every request has.
pub(super) fn head<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    let (scheme, authority) = ((":scheme", "https"), (":authority", "localhost"));
    [(":method", method), scheme, authority, (":path", path)]
}

/// A release with the token in a header or in the body.
fn release(token: &str, in_body: bool) -> Vec<u8> {
    if !in_body {
        let asked = [&head("DELETE", "/locks/a")[..], &[("lock-token", token)]];
        return headers(&asked.concat(), true);
    }
    let body = serde_json::json!({"token": token}).to_string();
    let length = body.len().to_string();
    let with_body = [
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
    ];
    let asked = [&head("POST", "/locks/a/release")[..], &with_body];
    let head = headers(&asked.concat(), false);
    [head, frame(0, 0x01, body.as_bytes())].concat()
}

/// Sends bytes and flushes them.
async fn write(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) {
    stream.write_all(bytes).await.unwrap();
    stream.flush().await.unwrap();
}

/// A new connection that the gateway knows as HTTP/2.
pub(super) async fn greeted(to: &Certified) -> TlsStream<TcpStream> {
    let mut stream = tls_connect(&to.authority, to.gateway.address, &[b"h2"]).await;
    write(&mut stream, GREETING).await;
    // The settings of the gateway.
    assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
    write(&mut stream, SETTINGS_HEARD).await;
    stream
}

async fn send(mut stream: TlsStream<TcpStream>, mut bytes: Vec<u8>, end: End) {
    if end == End::GoAway {
        bytes.extend(GO_AWAY);
    }
    write(&mut stream, &bytes).await;
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn it_is_carried_out() {
    let (certified, mut h2) = H2::start().await;
    for end in [End::Close, End::GoAway] {
        for in_body in [false, true] {
            for is_frozen in [true, false] {
                let (status, lease) = h2.acquire("a", r#"{"ttl_ms": 3600000}"#).await;
                assert_eq!(status, 201, "{lease}");
                let stream = greeted(&certified).await;
                let release = release(lease["token"].as_str().unwrap(), in_body);
                // The gateway reads all that arrives while it is frozen in one piece.
                if is_frozen {
                    certified.gateway.signal(Signal::STOP);
                    certified.gateway.stands_still();
                }
                send(stream, release, end).await;
                certified.gateway.signal(Signal::CONT);
                println!("{end:?}, in the body: {in_body}, frozen: {is_frozen}");
                h2.until_free("a").await;
            }
        }
    }
}

const ACQUIRE: &str = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// Resets the connection without a TLS alert.
fn reset(stream: TlsStream<TcpStream>) {
    let (stream, _) = stream.into_inner();
    stream.set_zero_linger().unwrap();
    drop(stream);
}

#[tokio::test]
async fn a_caller_that_reads_its_answer_and_then_resets_keeps_its_lease() {
    let (certified, h2) = H2::start().await;
    let address = certified.gateway.address;
    let mut stream = tls_connect(&certified.authority, address, &[b"http/1.1"]).await;
    stream.write_all(ACQUIRE.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.trim_ascii_end().ends_with(b"}") {
        assert!(stream.read_buf(&mut answer).await.unwrap() > 0);
    }
    assert!(answer.starts_with(b"HTTP/1.1 201 "));
    let open = certified.gateway.open_files();
    reset(stream);
    let is_so = async || certified.gateway.open_files() < open;
    until("the gateway has closed the connection", is_so).await;
    // The gateway would have released the lease by now: it has one worker, which handles these requests later.
    for _ in 0..3 {
        h2.until("a", "state", "held").await;
    }
}
