//! HTTP/2 frames that no client should send, over TLS.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use crate::{
    support::eventually,
    tls::{certified::Certified, h2_client::H2, tls_client},
};

use super::{answer::TIMEOUT, sample::sample};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend_from_slice(&[kind, flags]);
    frame.extend_from_slice(&stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// `POST /locks/a` of `localhost` as HPACK writes it, without a table.
fn acquire() -> Vec<u8> {
    let mut block = vec![0x83, 0x87];
    for (name, value) in [(4, "/locks/a"), (1, "localhost")] {
        block.extend_from_slice(&[name, u8::try_from(value.len()).unwrap()]);
        block.extend_from_slice(value.as_bytes());
    }
    block
}

/// What it is, and what follows the preface: a whole connection.
type Connection = (&'static str, Vec<u8>);

/// Frames behind settings that are as they should be.
fn behind(frames: &[Vec<u8>]) -> Vec<u8> {
    [frame(SETTINGS, 0, 0, &[]), frames.concat()].concat()
}

fn connections() -> Vec<Connection> {
    [of_settings(), of_heads(), of_others()].concat()
}

fn of_settings() -> Vec<Connection> {
    vec![
        ("no settings", frame(PING, 0, 0, &[0; 8])),
        ("settings of a stream", frame(SETTINGS, 0, 1, &[])),
        ("half a setting", frame(SETTINGS, 0, 0, &[0; 5])),
        (
            "an acknowledgement with settings",
            behind(&[frame(SETTINGS, 1, 0, &[0; 6])]),
        ),
        (
            "a window beyond its limit",
            frame(SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff]),
        ),
        (
            "frames smaller than allowed",
            frame(SETTINGS, 0, 0, &[0, 5, 0, 0, 0, 1]),
        ),
        (
            "a push that is neither on nor off",
            frame(SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]),
        ),
        (
            "a frame that is too long",
            behind(&[frame(DATA, 0, 1, &[0; 16_385])]),
        ),
    ]
}

fn of_heads() -> Vec<Connection> {
    let literal = |name: &[u8], value: &[u8]| {
        let mut block = acquire();
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text);
        }
        block
    };
    let asks = |block: &[u8]| frame(HEADERS, 5, 1, block);
    vec![
        ("data of no stream", behind(&[frame(DATA, 0, 0, b"x")])),
        (
            "data of a stream that is none",
            behind(&[frame(DATA, 0, 1, b"x")]),
        ),
        (
            "data behind the end",
            behind(&[asks(&acquire()), frame(DATA, 1, 1, b"x")]),
        ),
        (
            "headers of no stream",
            behind(&[frame(HEADERS, 5, 0, &acquire())]),
        ),
        (
            "headers of a stream of the server",
            behind(&[frame(HEADERS, 5, 2, &acquire())]),
        ),
        (
            "a stream that goes back",
            behind(&[frame(HEADERS, 5, 5, b"\xff"), asks(&acquire())]),
        ),
        (
            "padding longer than the frame",
            behind(&[frame(HEADERS, 0xd, 1, &[0xff, 0x83])]),
        ),
        ("no headers at all", behind(&[asks(&[])])),
        (
            "an index that is none",
            behind(&[asks(&[0xff, 0xff, 0xff, 0xff, 0x0f])]),
        ),
        ("index nothing", behind(&[asks(&[0x80])])),
        ("a text that is cut", behind(&[asks(&[0x44, 0x7f, b'/'])])),
        (
            "a huge table",
            behind(&[asks(&[0x3f, 0xff, 0xff, 0xff, 0x7f])]),
        ),
        (
            "an odd text of huffman",
            behind(&[asks(&[0x44, 0x82, 0xff, 0xff])]),
        ),
        ("no path", behind(&[asks(&[0x83, 0x87])])),
        (
            "an upper case name",
            behind(&[asks(&literal(b"X-A", b"b"))]),
        ),
        (
            "a name with a line break",
            behind(&[asks(&literal(b"x\r\ny", b"b"))]),
        ),
        (
            "a value with a line break",
            behind(&[asks(&literal(b"x", b"a\r\nb: c"))]),
        ),
        (
            "a value with a null",
            behind(&[asks(&literal(b"x", b"a\0b"))]),
        ),
        (
            "a header of the connection",
            behind(&[asks(&literal(b"connection", b"close"))]),
        ),
        (
            "chunks",
            behind(&[asks(&literal(b"transfer-encoding", b"chunked"))]),
        ),
        (
            "a pseudo header of answers",
            behind(&[asks(&literal(b":status", b"200"))]),
        ),
        (
            "a pseudo header that is none",
            behind(&[asks(&literal(b":x", b"y"))]),
        ),
        (
            "a second path",
            behind(&[asks(&literal(b":path", b"/locks/b"))]),
        ),
        (
            "a length that is none",
            behind(&[asks(&literal(b"content-length", b"x"))]),
        ),
        (
            "a length that is not so",
            behind(&[asks(&literal(b"content-length", b"5"))]),
        ),
    ]
}

fn of_others() -> Vec<Connection> {
    vec![
        (
            "a continuation of nothing",
            behind(&[frame(CONTINUATION, 4, 1, &acquire())]),
        ),
        (
            "something between a head and its continuation",
            behind(&[frame(HEADERS, 1, 1, &acquire()), frame(PING, 0, 0, &[0; 8])]),
        ),
        (
            "continuations without an end",
            behind(&[
                frame(HEADERS, 1, 1, &acquire()),
                frame(CONTINUATION, 0, 1, &[]).repeat(5_000),
            ]),
        ),
        (
            "a push of a client",
            behind(&[frame(PUSH_PROMISE, 4, 1, &[0, 0, 0, 2])]),
        ),
        (
            "a stream that depends on itself",
            behind(&[frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 1])]),
        ),
        (
            "a priority that is cut",
            behind(&[frame(PRIORITY, 0, 1, &[0; 4])]),
        ),
        (
            "a reset of no stream",
            behind(&[frame(RST_STREAM, 0, 0, &[0; 4])]),
        ),
        (
            "a reset of a stream that is none",
            behind(&[frame(RST_STREAM, 0, 7, &[0; 4])]),
        ),
        (
            "a reset that is cut",
            behind(&[frame(RST_STREAM, 0, 1, &[0; 3])]),
        ),
        ("a ping that is cut", behind(&[frame(PING, 0, 0, &[0; 7])])),
        ("a ping of a stream", behind(&[frame(PING, 0, 1, &[0; 8])])),
        (
            "a farewell of a stream",
            behind(&[frame(GOAWAY, 0, 1, &[0; 8])]),
        ),
        (
            "a farewell that is cut",
            behind(&[frame(GOAWAY, 0, 0, &[0; 7])]),
        ),
        (
            "a window of nothing",
            behind(&[frame(WINDOW_UPDATE, 0, 0, &[0; 4])]),
        ),
        (
            "a window that overflows",
            behind(&[frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])]),
        ),
        (
            "a window that is cut",
            behind(&[frame(WINDOW_UPDATE, 0, 0, &[0; 3])]),
        ),
        (
            "a frame of no kind",
            behind(&[frame(0xee, 0xff, 0x7fff_ffff, &[0xff; 100])]),
        ),
        (
            "pings",
            behind(&[frame(PING, 0, 0, &[0; 8]).repeat(20_000)]),
        ),
        (
            "settings",
            frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1]).repeat(20_000),
        ),
        ("nonsense", (0..=u8::MAX).cycle().take(5_000).collect()),
    ]
}

#[tokio::test]
async fn no_frame_ends_the_gateway_or_takes_a_lock_that_it_does_not_ask_for() {
    let certified = Certified::start();
    let mut other = H2::connect(&certified).await;
    for (what, frames) in &sample(connections(), 3) {
        let (authority, to) = (&certified.authority, certified.gateway.address);
        let mut stream = tls_client::connect(authority, to, &[b"h2"]).await;
        // It may be closed before all of it has been read.
        drop(stream.write_all(&[PREFACE, frames].concat()).await);
        drop(stream.flush().await);
        drop(stream.shutdown().await);
        let mut rest = Vec::new();
        let closed = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "{what}: the connection stays");
        // Whoever is on another connection notices nothing.
        eventually("nobody holds the lock", || {
            let mut other = other.clone();
            async move { (other.inspect("a").await["state"] == "free").then_some(()) }
        })
        .await;
        assert_eq!(other.inspect("b").await["state"], "free", "{what}");
    }
    let log = certified.gateway.log();
    assert!(!log.contains("panicked"), "{log}");
}
