//! JSON, content types, methods and streams that no route takes.

use super::bench::{Bench, Case, Expected, HELD, INVALID, PLANTED};
use crate::support::{
    operations::{operations, paths},
    words,
};

/// A body that has everything, and is right.
const WHOLE: &str = r#"{"ttl_ms": 30000, "wait_ms": 0, "max_hold_ms": 60000, "owner": "ci \"7\" \u00fc", "metadata": {"job": "4711", "a": ""}}"#;
const NO_OBJECTS: [&str; 38] = [
    "[]",
    "[{}]",
    "null",
    "true",
    "0",
    "\"\"",
    "\"{}\"",
    "{",
    "}",
    "{}}",
    "{}{}",
    "{} {}",
    "{}\n{}",
    "{},",
    ",",
    "{,}",
    "{\"ttl_ms\"}",
    "{\"ttl_ms\":}",
    "{\"ttl_ms\": 1000,}",
    "{\"ttl_ms\": 1000 \"wait_ms\": 0}",
    "{ttl_ms: 1000}",
    "{'ttl_ms': 1000}",
    "{\"ttl_ms\" = 1000}",
    "{/* */}",
    "{} // x",
    "# x\n{}",
    "ttl_ms=1000",
    "ttl_ms: 1000",
    "<a/>",
    "--x\r\nContent-Disposition: form-data\r\n",
    " ",
    "\n",
    "\u{feff}{}",
    "{}\u{0}",
    "\u{0}{}",
    "{\"owner\": \"a\nb\"}",
    "{\"owner\": \"\\x41\"}",
    "{\"owner\": \"\\u12\"}",
];
const NO_FIELDS: [&str; 34] = [
    r#"{"ttl_ms": 1000, "ttl_ms": 1000}"#,
    r#"{"ttl_ms": 1000, "\u0074tl_ms": 1000}"#,
    r#"{"metadata": {"a": "1", "a": "2"}}"#,
    r#"{"metadata": {"a": "1"}, "metadata": {}}"#,
    r#"{"mode": 1}"#,
    r#"{"mode": true}"#,
    r#"{"mode": ""}"#,
    r#"{"mode": "Shared"}"#,
    r#"{"mode": "shared "}"#,
    r#"{"mode": "shared\u0000"}"#,
    r#"{"mode": ["shared"]}"#,
    r#"{"mode": {"shared": 3}}"#,
    r#"{"mode": "exclusive", "limit": 3}"#,
    r#"{"mode": "shared", "mode": "exclusive"}"#,
    r#"{"x": 1}"#,
    r#"{"": 1}"#,
    r#"{"ttl": 1000}"#,
    r#"{"TTL_MS": 1000}"#,
    r#"{"ttl_ms ": 1000}"#,
    r#"{"ttlMs": 1000}"#,
    r#"{"ttl-ms": 1000}"#,
    r#"{"token": "x"}"#,
    r#"{"name": "a"}"#,
    r#"{"fencing_token": 1}"#,
    r#"{"__proto__": {"ttl_ms": 1000}}"#,
    r#"{"constructor": {}}"#,
    r#"{"$ne": null}"#,
    r#"{"owner": []}"#,
    r#"{"owner": {"$gt": ""}}"#,
    r#"{"owner": 1}"#,
    r#"{"owner": ""}"#,
    r#"{"owner": "\u0000"}"#,
    r#"{"owner": "\ud800"}"#,
    r#"{"owner": "\udc00\ud800"}"#,
];

pub(super) fn json_cases() -> Vec<Case> {
    let mut cases = vec![Case::acquire(WHOLE, Expected::Granted)];
    let whole = WHOLE.as_bytes();
    cases.extend((1..whole.len()).map(|len| Case::acquire(&whole[..len], INVALID)));
    for at in 0..whole.len() {
        for bit in [0x80, 0x20, 0x01] {
            let mut flipped = whole.to_vec();
            flipped[at] ^= bit;
            // Within a text it may be as right as before.
            let expected = if bit == 0x80 { INVALID } else { Expected::Sane };
            cases.push(Case::acquire(flipped, expected));
        }
    }
    for body in NO_OBJECTS.into_iter().chain(NO_FIELDS) {
        cases.push(Case::acquire(body, INVALID));
    }
    for depth in [2, 100, 126, 127, 128, 129, 1_000, 8_000] {
        let (lists, objects) = ("[".repeat(depth), "{\"a\":".repeat(depth.min(2_000)));
        cases.push(Case::acquire(
            format!("{lists}{}", "]".repeat(depth)),
            INVALID,
        ));
        cases.push(Case::acquire(format!("{{\"owner\":{lists}"), INVALID));
        cases.push(Case::acquire(&objects, INVALID));
    }
    for bytes in [
        &b"\xff\xfe{\x00}\x00"[..],
        b"\xfe\xff\x00{\x00}",
        b"\x00{\x00}",
        b"{\"owner\": \"\xff\"}",
        b"{\"owner\": \"\xc0\xaf\"}",
        b"{\"owner\": \"\xed\xa0\x80\"}",
        b"{\"\xff\": 1}",
        b"\x1f\x8b\x08\x00\x00\x00\x00\x00",
        b"\x80",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        cases.push(Case::acquire(bytes, INVALID));
    }
    let many: Vec<_> = (0..1_500).map(|i| format!("\"{i}\":0")).collect();
    cases.push(Case::acquire(format!("{{{}}}", many.join(",")), INVALID));
    let large = format!("{{\"owner\": \"{}\"}}", "a".repeat(17_000));
    cases.push(Case::acquire(large, Expected::Refused(413, "too-large")));
    // A secret in the wrong place is not repeated.
    for body in [
        format!("{{\"ttl_ms\": \"{PLANTED}\"}}"),
        format!("{{\"metadata\": \"{PLANTED}\"}}"),
        format!("\"{PLANTED}\""),
        format!("{{\"owner\": [\"{PLANTED}\"]}}"),
    ] {
        cases.push(Case::acquire(body, INVALID));
    }
    for (line, body) in [
        ("POST /locks/witness/break", "{\"reason\": \"\"}"),
        ("POST /locks/witness/break", "{}"),
        ("POST /locks/witness/break", "{\"reason\": \"a\\nb\"}"),
        ("POST /locks/witness/break", "{\"reason\": 1}"),
        (
            "POST /locks/witness/break",
            "{\"reason\": \"x\", \"grace_ms\": 3600001}",
        ),
        (
            "POST /locks/witness/break",
            "{\"reason\": \"x\", \"grace_ms\": \"1s\"}",
        ),
        (
            "POST /locks/witness/break",
            "{\"reason\": \"x\", \"force\": true}",
        ),
        ("POST /locks/witness/release", "{\"token\": null, \"x\": 1}"),
        ("POST /locks/witness/release", "[]"),
        ("DELETE /locks/witness", "{\"token\": {}}"),
        ("PUT /locks/witness/renew", "{\"wait_ms\": 1}"),
    ] {
        assert!(line.contains(HELD));
        cases.push(Case::body(line, body, INVALID));
    }
    cases
}

#[tokio::test]
async fn nothing_is_a_body_that_could_be_read_in_two_ways() {
    Bench::start().await.run(json_cases()).await;
}

const NO_JSON: [&str; 25] = [
    "",
    "json",
    "text/json",
    "text/plain",
    "text/plain; charset=utf-8",
    "text/html",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/xml",
    "application/jsonp",
    "application/jsonl",
    "application/json5",
    "application/problem+json",
    "application/vnd.api+json",
    "application/octet-stream",
    "application/x-ndjson",
    "application/json; charset=utf-16",
    "application/json; charset=latin1",
    "application/json;charset=",
    "application/json, text/plain",
    "application/jsontext/plain",
    "application",
    "*/*",
    "application/*",
    "application/ json",
];
const CODINGS: [&str; 9] = [
    "gzip",
    "br",
    "deflate",
    "zstd",
    "compress",
    "identity, gzip",
    "gzip, identity",
    "x",
    "",
];
const MEDIA: Expected = Expected::Refused(415, "unsupported-media-type");

#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn content_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let token = ("Lock-Token", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
    let operations = operations();
    let with_body = operations
        .iter()
        .filter(|it| it.body_is_required().is_some());
    for line in with_body
        .map(|it| it.line("a"))
        .chain(["DELETE /locks/a".to_owned()])
    {
        for media in NO_JSON {
            cases.push(Case::new(
                &line,
                &[token, ("Content-Type", media)],
                b"{}",
                MEDIA,
            ));
        }
        for coding in CODINGS {
            let headers = [token, ("Content-Encoding", coding)];
            cases.push(Case::new(&line, &headers, b"{}", MEDIA));
        }
        let twice = [
            token,
            ("Content-Type", "application/json"),
            ("Content-Type", "application/json"),
        ];
        cases.push(Case::new(&line, &twice, b"{}", MEDIA));
    }
    for media in [
        "application/json",
        "Application/JSON",
        "application/json;charset=UTF-8",
        "application/json; x=y",
    ] {
        let headers = [("Content-Type", media)];
        cases.push(Case::new(
            "POST /locks/a",
            &headers,
            b"{}",
            Expected::Granted,
        ));
    }
    let not_acceptable = Expected::Refused(406, "not-acceptable");
    let in_json = operations
        .iter()
        .filter(|it| it.media() == ["application/json"]);
    for line in in_json.map(|it| it.line("a")) {
        for accept in [
            "text/html",
            "text/*",
            "application/xml",
            "application/json;q=0",
            "*/*;q=0",
            "application/problem+json",
            "image/png, text/html;q=0.9",
            "x",
        ] {
            cases.push(Case::with(&line, ("Accept", accept), not_acceptable));
        }
        for accept in [
            "application/json;q=x",
            "a/b/c, */*",
            ";",
            ",,,",
            "*/*;q=1.0000000000",
        ] {
            cases.push(Case::with(&line, ("Accept", accept), Expected::Sane));
        }
    }
    for expect in ["100-continue", "200-ok", "x"] {
        let headers = [("Expect", expect), ("Content-Type", "text/plain")];
        cases.push(Case::new("POST /locks/a", &headers, b"{}", MEDIA));
    }
    for id in [
        "a b",
        "<script>",
        "\u{e4}",
        &"a".repeat(129),
        "",
        "a\tb",
        "\"x\"",
    ] {
        // It is named otherwise.
        let headers = [("X-Request-Id", id)];
        cases.push(Case::new("GET /locks/.", &headers, b"", INVALID));
    }
    for parent in [
        "",
        "x",
        "00-0-0-00",
        "00-00000000000000000000000000000000-0000000000000000-01",
        "ff-x",
    ] {
        let headers = [("traceparent", parent)];
        cases.push(Case::new(
            "GET /locks/a",
            &headers,
            b"",
            Expected::Answered(200),
        ));
    }
    // More headers than HTTP/1.1 is read with: refused before it is a request.
    let many: Vec<_> = (0..101).map(|i| format!("x-{i}")).collect();
    let many: Vec<_> = many.iter().map(|name| (name.as_str(), "1")).collect();
    let large = Expected::Refused(431, "headers-too-large");
    cases.push(Case::new("POST /locks/a", &many, b"", Expected::Declined));
    let long = "x".repeat(17_000);
    cases.push(Case::with("POST /locks/a", ("x", &long), large));
    cases
}

#[tokio::test]
async fn nothing_is_read_that_is_no_json() {
    Bench::start().await.run(content_cases()).await;
}

const METHODS: [&str; 17] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "LOCK",
    "UNLOCK", "PURGE", "BREW", "get", "Post", "GETT", "X-Y_Z",
];

fn methods_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (path, takes) in paths() {
        for method in METHODS {
            if takes.split(", ").any(|it| it == method) {
                continue;
            }
            // Some are no request at all to who reads HTTP.
            let expected = match method {
                "CONNECT" => Expected::Declined,
                _ => Expected::Refused(405, "method-not-allowed"),
            };
            // The answer to HEAD tells a length and has no body: its end is that of the connection.
            let close = [("Connection", "close")];
            cases.push(Case::new(
                &format!("{method} {path}"),
                &close,
                b"",
                expected,
            ));
        }
    }
    for target in ["*", "a", "", "http://", "locks/a"] {
        for method in ["GET", "POST", "OPTIONS"] {
            let expected = match (method, target) {
                ("OPTIONS", "*") => Expected::Sane,
                _ => Expected::Declined,
            };
            cases.push(Case::bare(format!("{method} {target}"), expected));
        }
    }
    let long = "A".repeat(10_000);
    cases.push(Case::bare(format!("{long} /locks/a"), Expected::Declined));
    cases
}

#[tokio::test]
async fn no_route_takes_a_method_that_it_does_not_list() {
    Bench::start().await.run(methods_cases()).await;
}

fn streams_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let not_acceptable = Expected::Refused(406, "not-acceptable");
    for line in ["GET /events", "POST /locks/a/hold"] {
        for accept in words("text/html application/xml text/event-stream;q=0 image/* x") {
            cases.push(Case::with(line, ("Accept", accept), not_acceptable));
        }
    }
    let list = r"
        x=1 prefix=a&prefix=b prefix=%FF prefix={a} prefix=a/b prefix=a%00 limit=1 Prefix=a
    ";
    for query in words(list) {
        cases.push(Case::bare(format!("GET /events?{query}"), INVALID));
    }
    let long = format!("GET /events?prefix={}", "a".repeat(201));
    cases.push(Case::bare(long, INVALID));
    let line = format!("POST /locks/{HELD}/hold");
    for body in [
        "{\"ttl_ms\": 0}",
        "{\"max_hold_ms\": 1}",
        "{\"wait_ms\": -1}",
        "{\"token\": \"x\"}",
        "[]",
        "{",
        "{\"x\": 1}",
    ] {
        cases.push(Case::body(&line, body, INVALID));
    }
    // Before any stream begins.
    cases.push(Case::bare(&line, Expected::Refused(423, "locked")));
    let query = format!("{line}?ttl_ms=1000");
    cases.push(Case::bare(query, INVALID));
    let list = r"
        cursor=x cursor=AAAAAAAAAAAAAAAAAAAAAAAA cursor= cursor=%00 owner= owner=a%0ab search=
        search=%FF prefix=* prefix=a&x=1 limit=10&limit=10 %FF=1 prefix=%ZZ
    ";
    for query in words(list) {
        cases.push(Case::bare(format!("GET /locks?{query}"), INVALID));
    }
    cases
}

#[tokio::test]
async fn no_stream_begins_that_should_not() {
    Bench::start().await.run(streams_cases()).await;
}

#[tokio::test]
async fn an_id_that_is_none_is_no_reason_to_hear_nothing() {
    let bench = Bench::start().await;
    let long = "x".repeat(4_000);
    for id in [
        "",
        "x",
        "-1",
        "0-0",
        "\u{e4}",
        "a-18446744073709551616",
        "../..",
        long.as_str(),
    ] {
        let request =
            format!("GET /events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: {id}\r\n\r\n");
        let answer = bench.send(request.as_bytes()).await.unwrap();
        assert!(
            answer.status == 200 || answer.problem() == "invalid-request",
            "{answer:?}"
        );
    }
    bench.unharmed().await;
}
