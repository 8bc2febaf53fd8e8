//! HTTP/1 that two readers could read in two ways, or nobody.

use super::{
    bench::Bench,
    case::{Case, Expected},
};

const LINE: &str =
    "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

/// Headers that say in two ways, or in none, where a body ends; and a body.
const FRAMINGS: [(&str, &str); 34] = [
    (
        "Content-Length: 2\r\nTransfer-Encoding: chunked",
        "2\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "Transfer-Encoding: chunked\r\nContent-Length: 2",
        "2\r\n{}\r\n0\r\n\r\n",
    ),
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
    ("Transfer-Encoding : chunked", "2\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: xchunked", "2\r\n{}\r\n0\r\n\r\n"),
    (
        "Transfer-Encoding: chunked, identity",
        "2\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "Transfer-Encoding: identity, chunked",
        "2\r\n{}\r\n0\r\n\r\n",
    ),
    ("Transfer-Encoding: gzip", "2\r\n{}\r\n0\r\n\r\n"),
    (
        "Transfer-Encoding: chunked, chunked",
        "2\r\n{}\r\n0\r\n\r\n",
    ),
    (
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "2\r\n{}\r\n0\r\n\r\n",
    ),
    ("Transfer-Encoding: \"chunked\"", "2\r\n{}\r\n0\r\n\r\n"),
    ("Transfer-Encoding: chunked;x=y", "2\r\n{}\r\n0\r\n\r\n"),
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
/// Those that are read as chunks. Nothing behind such a request is taken for another one.
const READ_AS_CHUNKS: [&str; 5] = [
    "Content-Length: 2\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 2",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
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

fn cases() -> Vec<Case> {
    // What comes behind a body that may end elsewhere is not taken for a request.
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
    Bench::start().await.run(cases()).await;
}
