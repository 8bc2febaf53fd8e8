//! A release over HTTP/2 that comes in one piece with the end of its connection, byte by byte.

use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use crate::support::eventually;

use super::{certified::Certified, h2_client::H2, tls_client};

/// What follows a request, and how the connection ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// It is closed.
    Close,
    /// The same, after its client has said so.
    GoAway,
}

/// What a client says first: the greeting, and settings that change nothing.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS_HEARD: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";
const GO_AWAY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";

/// A frame of a stream. The flags say whether the headers, or the stream, end with it.
pub(super) fn frame_of(stream: u32, kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// One of the first stream.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame_of(1, kind, flags, payload)
}

/// The names and values of a head, none of them compressed.
pub(super) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.push(
                u8::try_from(text.len())
                    .ok()
                    .filter(|it| *it < 127)
                    .unwrap(),
            );
            block.extend(text.bytes());
        }
    }
    block
}

fn headers(fields: &[(&str, &str)], is_all: bool) -> Vec<u8> {
    frame(1, if is_all { 0x05 } else { 0x04 }, &block(fields))
}

/// A release with the token in a header, or in the body.
fn release(token: &str, in_body: bool) -> Vec<u8> {
    let asked = |method, path| {
        [
            (":method", method),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", path),
        ]
    };
    if !in_body {
        let asked = [&asked("DELETE", "/locks/a")[..], &[("lock-token", token)]];
        return headers(&asked.concat(), true);
    }
    let body = serde_json::json!({"token": token}).to_string();
    let length = body.len().to_string();
    let with_body = [
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
    ];
    let asked = [&asked("POST", "/locks/a/release")[..], &with_body];
    let head = headers(&asked.concat(), false);
    [head, frame(0, 0x01, body.as_bytes())].concat()
}

/// A connection on which nothing was asked for yet, known to the gateway as one over HTTP/2.
pub(super) async fn greeted(to: &Certified) -> TlsStream<TcpStream> {
    let mut stream = tls_client::connect(&to.authority, to.gateway.address, &[b"h2"]).await;
    stream.write_all(GREETING).await.unwrap();
    stream.flush().await.unwrap();
    // Its settings.
    assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
    stream.write_all(SETTINGS_HEARD).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

async fn send(mut stream: TlsStream<TcpStream>, mut bytes: Vec<u8>, end: End) {
    match end {
        End::Close => {}
        End::GoAway => bytes.extend(GO_AWAY),
    }
    stream.write_all(&bytes).await.unwrap();
    stream.flush().await.unwrap();
    stream.shutdown().await.unwrap();
}

#[tokio::test]
async fn it_is_carried_out() {
    let certified = Certified::start();
    let mut h2 = H2::connect(&certified).await;
    for end in [End::Close, End::GoAway] {
        for in_body in [false, true] {
            for is_frozen in [true, false] {
                let (status, lease) = h2.acquire("a", r#"{"ttl_ms": 3600000}"#).await;
                assert_eq!(status, 201, "{lease}");
                let stream = greeted(&certified).await;
                let release = release(lease["token"].as_str().unwrap(), in_body);
                // What comes while it is frozen is read in one piece.
                if is_frozen {
                    certified.gateway.signal(Signal::STOP);
                    certified.gateway.stands_still();
                }
                send(stream, release, end).await;
                certified.gateway.signal(Signal::CONT);
                let what = format!("{end:?}, in the body: {in_body}, frozen: {is_frozen}");
                eventually(&what, || {
                    let mut h2 = h2.clone();
                    async move { (h2.inspect("a").await["state"] == "free").then_some(()) }
                })
                .await;
            }
        }
    }
}
