//! HTTP/1 requests that two readers could read in two ways, and HTTP/2 frames that no client should send.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::bench::{Bench, Case, Expected, TIMEOUT, sample};
use crate::{
    support::eventually,
    tls::fixture::{Certified, H2, tls_connect},
};

const LINE: &str =
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

/// A body in chunks.
const BODY: &str = "2\r\n{}\r\n0\r\n\r\n";

/// Headers that state the end of a body in two ways or in no way, each with a body.
const FRAMINGS: [(&str, &str); 38] = [
    ("Content-Length: 2\r\nTransfer-Encoding: chunked", BODY),
    ("Transfer-Encoding: chunked\r\nContent-Length: 2", BODY),
    ("Content-Length: 2\r\nContent-Length: 3", "{} "),
    ("Content-Length: 3\r\nContent-Length: 2", "{} "),
    ("Content-Length: 2, 3", "{} "),
    ("Content-Length: +2", "{}"),
    ("Content-Length: -2", "{}"),
    ("Content-Length: 2 ,", "{}"),
    ("Content-Length: 0x2", "{}"),
    ("Content-Length: 2\r\n 2", "{}"),
    ("Content-Length: 18446744073709551618", "{}"),
    ("Content-Length : 2", "{}"),
    (" Content-Length: 2", "{}"),
    ("Content-Length\t: 2", "{}"),
    ("Transfer-Encoding : chunked", BODY),
    ("Transfer-Encoding: xchunked", BODY),
    ("Transfer-Encoding: chunked, identity", BODY),
    ("Transfer-Encoding: identity, chunked", BODY),
    ("Transfer-Encoding: gzip", BODY),
    ("Transfer-Encoding: foo, chunked", BODY),
    ("Transfer-Encoding: foo\r\nTransfer-Encoding: chunked", BODY),
    ("Transfer-Encoding: , chunked", BODY),
    ("Transfer-Encoding: \r\nTransfer-Encoding: chunked", BODY),
    ("Transfer-Encoding: chunked, chunked", BODY),
    (
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        BODY,
    ),
    ("Transfer-Encoding: \"chunked\"", BODY),
    ("Transfer-Encoding: chunked;x=y", BODY),
    ("Transfer-Encoding: chunked", "x\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "-2\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "+2\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "0x2\r\n{}\r\n0\r\n\r\n"),
    (
        "Transfer-Encoding: chunked",
        "ffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "Transfer-Encoding: chunked",
        "10000000000000002\r\n{}\r\n0\r\n\r\n",
    ),
    ("Transfer-Encoding: chunked", "2\r\n{}x\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "2\r\n{}0\r\n\r\n\r\n"),
    ("Transfer-Encoding: chunked", "\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "2;\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked", "2\n{}\n0\n\n"),
];
/// The headers that count as chunked. Bytes behind such a request are not read as another request.
const READ_AS_CHUNKS: [&str; 2] = [
    "Content-Length: 2\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 2",
];
/// Whole requests.
const REQUESTS: [&str; 44] = [
    "\r\n\r\n\r\n",
    " POST /locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST\t/locks/a\tHTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST  /locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /locks/a  HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /locks/a HTTP/1.1 \r\nHost: localhost\r\n\r\n",
    "POST /locks/a HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "POST /locks/a HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "POST /locks/a HTTP/0.9\r\nHost: localhost\r\n\r\n",
    "POST /locks/a HTTP/11\r\nHost: localhost\r\n\r\n",
    "POST /locks/a http/1.1\r\nHost: localhost\r\n\r\n",
    "POST /locks/a HTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /locks/a\r\n\r\n",
    "POST /locks/a\r\nHost: localhost\r\n\r\n",
    "/locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX Y: z\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX(Y): z\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\n: z\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX\0: b\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX: \u{1}\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nX: \u{7f}\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost: localhost, evil.example\r\n\r\n",
    "POST /locks/a HTTP/1.1\r\nHost:\r\n\r\n",
    "POST /locks/a HTTP/1.0\r\n\r\n",
    "POST http://evil.example/locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST http://localhost/locks/a HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "POST https:///locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "POST file:///locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    "\u{16}\u{3}\u{1}\u{0}\u{5}\u{1}\u{0}\u{0}\u{1}\u{0}",
    "*1\r\n$4\r\nPING\r\n\r\n",
    "EHLO localhost\r\n\r\n",
    "{\"ttl_ms\": 1000}\r\n\r\n",
    "\0\0\0\0\r\n\r\n",
];

fn framing_cases() -> Vec<Case> {
    // A request behind a body with a doubtful end must not be read as a request.
    let smuggled = "POST /locks/smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    let framed = FRAMINGS.into_iter().map(|(framing, body)| {
        let expected = if READ_AS_CHUNKS.contains(&framing) && body.starts_with("2\r\n{}\r\n") {
            Expected::Sane
        } else {
            Expected::Declined
        };
        Case::raw(format!("{LINE}{framing}\r\n\r\n{body}{smuggled}"), expected)
    });
    let whole = REQUESTS.into_iter();
    let whole = whole.map(|request| Case::raw(request, Expected::Declined));
    let mut cases: Vec<_> = framed.chain(whole).collect();
    let right = format!("{LINE}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n\r\n");
    cases.push(Case::raw(right, Expected::Granted));
    for (extension, expected) in [
        ("2;x=y".to_owned(), Expected::Sane),
        (format!("2;{}", "x".repeat(100_000)), Expected::Declined),
        (format!("{}2", "0".repeat(100)), Expected::Sane),
    ] {
        let request =
            format!("{LINE}Transfer-Encoding: chunked\r\n\r\n{extension}\r\n{{}}\r\n0\r\n\r\n");
        cases.push(Case::raw(request, expected));
    }
    let trailers = "X: y\r\n".repeat(2_000);
    let request =
        format!("{LINE}Transfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n{trailers}\r\n");
    cases.push(Case::raw(request, Expected::Sane));
    cases
}

#[tokio::test]
async fn no_request_is_read_in_two_ways() {
    Bench::start().await.run(framing_cases()).await;
}

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

/// The header block of `POST /locks/a` for `localhost` in HPACK, without a dynamic table.
fn acquire() -> Vec<u8> {
    let mut block = vec![0x83, 0x87];
    for (name, value) in [(4, "/locks/a"), (1, "localhost")] {
        block.extend_from_slice(&[name, u8::try_from(value.len()).unwrap()]);
        block.extend_from_slice(value.as_bytes());
    }
    block
}

/// A description, and the bytes of a whole connection after the preface.
type Connection = (&'static str, Vec<u8>);

/// Frames after valid settings.
fn behind(frames: &[Vec<u8>]) -> Vec<u8> {
    [frame(SETTINGS, 0, 0, &[]), frames.concat()].concat()
}

/// A single frame after valid settings.
fn one(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    behind(&[frame(kind, flags, stream, payload)])
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
            one(SETTINGS, 1, 0, &[0; 6]),
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
        ("a frame that is too long", one(DATA, 0, 1, &[0; 16_385])),
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
    let head = |block: &[u8]| behind(&[asks(block)]);
    let with = |name: &[u8], value: &[u8]| head(&literal(name, value));
    vec![
        ("data of no stream", one(DATA, 0, 0, b"x")),
        ("data of a stream that is none", one(DATA, 0, 1, b"x")),
        (
            "data behind the end",
            behind(&[asks(&acquire()), frame(DATA, 1, 1, b"x")]),
        ),
        ("headers of no stream", one(HEADERS, 5, 0, &acquire())),
        (
            "headers of a stream of the server",
            one(HEADERS, 5, 2, &acquire()),
        ),
        (
            "a stream that goes back",
            behind(&[frame(HEADERS, 5, 5, b"\xff"), asks(&acquire())]),
        ),
        (
            "padding longer than the frame",
            one(HEADERS, 0xd, 1, &[0xff, 0x83]),
        ),
        ("no headers at all", head(&[])),
        (
            "an index that is none",
            head(&[0xff, 0xff, 0xff, 0xff, 0x0f]),
        ),
        ("index nothing", head(&[0x80])),
        ("a text that is cut", head(&[0x44, 0x7f, b'/'])),
        ("a huge table", head(&[0x3f, 0xff, 0xff, 0xff, 0x7f])),
        ("an odd text of huffman", head(&[0x44, 0x82, 0xff, 0xff])),
        ("no path", head(&[0x83, 0x87])),
        ("an upper case name", with(b"X-A", b"b")),
        ("a name with a line break", with(b"x\r\ny", b"b")),
        ("a value with a line break", with(b"x", b"a\r\nb: c")),
        ("a value with a null", with(b"x", b"a\0b")),
        ("a header of the connection", with(b"connection", b"close")),
        ("chunks", with(b"transfer-encoding", b"chunked")),
        ("a pseudo header of answers", with(b":status", b"200")),
        ("a pseudo header that is none", with(b":x", b"y")),
        ("a second path", with(b":path", b"/locks/b")),
        ("a length that is none", with(b"content-length", b"x")),
        ("a length that is not so", with(b"content-length", b"5")),
    ]
}

fn of_others() -> Vec<Connection> {
    vec![
        (
            "a continuation of nothing",
            one(CONTINUATION, 4, 1, &acquire()),
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
        ("a push of a client", one(PUSH_PROMISE, 4, 1, &[0, 0, 0, 2])),
        (
            "a stream that depends on itself",
            one(PRIORITY, 0, 1, &[0, 0, 0, 1, 1]),
        ),
        ("a priority that is cut", one(PRIORITY, 0, 1, &[0; 4])),
        ("a reset of no stream", one(RST_STREAM, 0, 0, &[0; 4])),
        (
            "a reset of a stream that is none",
            one(RST_STREAM, 0, 7, &[0; 4]),
        ),
        ("a reset that is cut", one(RST_STREAM, 0, 1, &[0; 3])),
        ("a ping that is cut", one(PING, 0, 0, &[0; 7])),
        ("a ping of a stream", one(PING, 0, 1, &[0; 8])),
        ("a farewell of a stream", one(GOAWAY, 0, 1, &[0; 8])),
        ("a farewell that is cut", one(GOAWAY, 0, 0, &[0; 7])),
        ("a window of nothing", one(WINDOW_UPDATE, 0, 0, &[0; 4])),
        (
            "a window that overflows",
            one(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ),
        ("a window that is cut", one(WINDOW_UPDATE, 0, 0, &[0; 3])),
        (
            "a frame of no kind",
            one(0xee, 0xff, 0x7fff_ffff, &[0xff; 100]),
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
        let mut stream = tls_connect(authority, to, &[b"h2"]).await;
        // The gateway may close the connection before it has read everything.
        drop(stream.write_all(&[PREFACE, frames].concat()).await);
        drop(stream.flush().await);
        drop(stream.shutdown().await);
        let mut rest = Vec::new();
        let closed = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "{what}: the connection stays");
        // A caller on another connection notices nothing.
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
