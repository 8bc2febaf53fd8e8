//! JSON, content types, targets and streams that no route accepts.

use super::bench::{Bench, Case, Expected, HELD, INVALID, PLANTED};
use crate::support::{operations::operations, rows, words};

/// A valid body with all fields.
const WHOLE: &str = r#"{"ttl_ms": 30000, "wait_ms": 0, "max_hold_ms": 60000, "min_hold_ms": 1, "owner": "ci \"7\" \u00fc", "metadata": {"job": "4711", "a": ""}}"#;
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
const NO_FIELDS: &str = r#"
    {"ttl_ms":1000,"ttl_ms":1000} {"ttl_ms":1000,"\u0074tl_ms":1000}
    {"metadata":{"a":"1","a":"2"}} {"metadata":{"a":"1"},"metadata":{}} {"mode":1} {"mode":true}
    {"mode":""} {"mode":"Shared"} {"mode":"shared\u0000"} {"mode":["shared"]}
    {"mode":{"shared":3}} {"mode":"exclusive","limit":3} {"mode":"shared","mode":"exclusive"}
    {"x":1} {"":1} {"ttl":1000} {"TTL_MS":1000} {"ttlMs":1000} {"ttl-ms":1000} {"token":"x"}
    {"name":"a"} {"fencing_token":1} {"__proto__":{"ttl_ms":1000}} {"constructor":{}} {"$ne":null}
    {"owner":[]} {"owner":{"$gt":""}} {"owner":1} {"owner":""} {"owner":"\u0000"}
    {"owner":"\ud800"} {"owner":"\udc00\ud800"}
    {"supersedes":""} {"supersedes":1} {"supersedes":true} {"supersedes":[]} {"supersedes":["a"]} {"supersedes":{}}
    {"reserve":1} {"reserve":"Fri"} {"reserve":[]} {"reserve":true} {"reserve":{}} {"reserve":{"until":"2026-12-01T00:00:00Z"}}
    {"reserve":{"reason":"x"}} {"reserve":{"until":1,"reason":"x"}} {"reserve":{"until":"","reason":"x"}}
    {"reserve":{"until":"soon","reason":"x"}} {"reserve":{"until":"18:00","reason":"x"}}
    {"reserve":{"until":"2020-01-01T00:00:00Z","reason":"x"}} {"reserve":{"until":"9999-12-31T23:59:59Z","reason":"x"}}
    {"reserve":{"until":"2026-12-01T00:00:00","reason":"x"}} {"reserve":{"until":"-009999-01-01T00:00:00Z","reason":"x"}}
    {"reserve":{"until":"2026-12-01T00:00:00Z","reason":""}} {"reserve":{"until":"2026-12-01T00:00:00Z","reason":1}}
    {"reserve":{"until":"2026-12-01T00:00:00Z","reason":"a\u001b"}} {"reserve":{"until":"2026-12-01T00:00:00Z","reason":"\ud800"}}
    {"reserve":{"until":"2026-12-01T00:00:00Z","reason":"x","by":"x"}} {"reserved":{}} {"reservation":{}} {"reserved_by":"x"}
    {"supersedes":"\u0000"} {"supersedes":"a\u001b"} {"supersedes":"\ud800"} {"superseded":"a"} {"latest":true}
"#;
/// Wrong fields with blanks in a text.
const NO_FIELDS_EITHER: [&str; 3] = [
    r#"{"mode": "shared "}"#,
    r#"{"ttl_ms ": 1000}"#,
    r#"{"supersedes": "  "}"#,
];

pub(super) fn json_cases() -> Vec<Case> {
    let mut cases = vec![Case::acquire(WHOLE, Expected::Granted)];
    let whole = WHOLE.as_bytes();
    cases.extend((1..whole.len()).map(|len| Case::acquire(&whole[..len], INVALID)));
    for at in 0..whole.len() {
        for bit in [0x80, 0x20, 0x01] {
            let mut flipped = whole.to_vec();
            flipped[at] ^= bit;
            // A changed bit inside a text may leave the body valid.
            let expected = if bit == 0x80 { INVALID } else { Expected::Sane };
            cases.push(Case::acquire(flipped, expected));
        }
    }
    let no_fields = words(NO_FIELDS).chain(NO_FIELDS_EITHER);
    for body in NO_OBJECTS.into_iter().chain(no_fields) {
        cases.push(Case::acquire(body, INVALID));
    }
    for depth in [2, 100, 126, 127, 128, 129, 1_000, 8_000] {
        let (lists, objects) = ("[".repeat(depth), "{\"a\":".repeat(depth.min(2_000)));
        let closed = format!("{lists}{}", "]".repeat(depth));
        cases.push(Case::acquire(closed, INVALID));
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
    // A secret in the wrong place is not repeated in the answer.
    for body in [
        format!("{{\"ttl_ms\": \"{PLANTED}\"}}"),
        format!("{{\"metadata\": \"{PLANTED}\"}}"),
        format!("\"{PLANTED}\""),
        format!("{{\"owner\": [\"{PLANTED}\"]}}"),
    ] {
        cases.push(Case::acquire(body, INVALID));
    }
    let of_others = r#"
        POST /locks/witness/break => {"reason": ""}
        POST /locks/witness/break => {}
        POST /locks/witness/break => {"reason": "a\nb"}
        POST /locks/witness/break => {"reason": 1}
        POST /locks/witness/break => {"reason": "x", "grace_ms": 3600001}
        POST /locks/witness/break => {"reason": "x", "grace_ms": "1s"}
        POST /locks/witness/break => {"reason": "x", "force": true}
        POST /locks/witness/release => {"token": null, "x": 1}
        POST /locks/witness/release => []
        DELETE /locks/witness => {"token": {}}
        PUT /locks/witness/renew => {"wait_ms": 1}
    "#;
    for (line, body) in rows(of_others) {
        assert!(line.contains(HELD));
        cases.push(Case::body(line, body, INVALID));
    }
    cases
}

#[tokio::test]
async fn nothing_is_a_body_that_could_be_read_in_two_ways() {
    Bench::start().await.run(json_cases()).await;
}

const NO_JSON: &str = "
    json text/json text/plain text/html application/x-www-form-urlencoded application/xml
    application/jsonp application/jsonl application/json5 application/problem+json
    application/vnd.api+json application/octet-stream application/x-ndjson
    application/json;charset= application/jsontext/plain application */* application/*
";
/// Wrong content types with blanks, and an empty one.
const NO_JSON_EITHER: [&str; 7] = [
    "",
    "text/plain; charset=utf-8",
    "multipart/form-data; boundary=x",
    "application/json; charset=utf-16",
    "application/json; charset=latin1",
    "application/json, text/plain",
    "application/ json",
];
const CODINGS: [&str; 3] = ["identity, gzip", "gzip, identity", ""];
const MEDIA: Expected = Expected::Refused(415, "unsupported-media-type");

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
        for media in words(NO_JSON).chain(NO_JSON_EITHER) {
            let headers = [token, ("Content-Type", media)];
            cases.push(Case::new(&line, &headers, b"{}", MEDIA));
        }
        for coding in words("gzip br deflate zstd compress x").chain(CODINGS) {
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
        let line = "POST /locks/a";
        cases.push(Case::new(line, &headers, b"{}", Expected::Granted));
    }
    let not_acceptable = Expected::Refused(406, "not-acceptable");
    let in_json = operations
        .iter()
        .filter(|it| it.media() == ["application/json"]);
    for line in in_json.map(|it| it.line("a")) {
        let html = "text/html text/* application/xml application/json;q=0 */*;q=0 x";
        let others = ["application/problem+json", "image/png, text/html;q=0.9"];
        for accept in words(html).chain(others) {
            cases.push(Case::with(&line, ("Accept", accept), not_acceptable));
        }
        for accept in words("application/json;q=x ; ,,, */*;q=1.0000000000").chain(["a/b/c, */*"]) {
            cases.push(Case::with(&line, ("Accept", accept), Expected::Sane));
        }
    }
    for expect in ["100-continue", "200-ok", "x"] {
        let headers = [("Expect", expect), ("Content-Type", "text/plain")];
        cases.push(Case::new("POST /locks/a", &headers, b"{}", MEDIA));
    }
    let long = "a".repeat(129);
    for id in ["a b", "<script>", "\u{e4}", &long, "", "a\tb", "\"x\""] {
        // The answer has another request id.
        let headers = [("X-Request-Id", id)];
        cases.push(Case::new("GET /locks/.", &headers, b"", INVALID));
        cases.push(Case::new(
            "GET /locks/a%20b/history",
            &headers,
            b"",
            INVALID,
        ));
    }
    let zeros = "00-00000000000000000000000000000000-0000000000000000-01";
    for parent in ["", "x", "00-0-0-00", zeros, "ff-x"] {
        let header = ("traceparent", parent);
        cases.push(Case::with("GET /locks/a", header, Expected::Answered(200)));
    }
    // More headers than the HTTP/1.1 parser reads: the request is refused before it is complete.
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

fn targets_cases() -> Vec<Case> {
    let mut cases = Vec::new();
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
    for path in ["/locks/a", "/locks", "/healthz"] {
        cases.push(Case::bare(format!("CONNECT {path}"), Expected::Declined));
    }
    cases
}

#[tokio::test]
async fn no_route_takes_a_target_or_a_method_that_is_none() {
    Bench::start().await.run(targets_cases()).await;
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
        x=1 prefix=a&prefix=b prefix=%FF prefix={a} prefix=a//b prefix=/a prefix=..%2f prefix=a%5cb prefix=a%00 limit=1 Prefix=a
    ";
    for query in words(list) {
        cases.push(Case::bare(format!("GET /events?{query}"), INVALID));
    }
    let long = format!("GET /events?prefix={}", "a".repeat(201));
    cases.push(Case::bare(long, INVALID));
    let line = format!("POST /locks/{HELD}/hold");
    for body in words(r#"{"ttl_ms":0} {"max_hold_ms":1} {"wait_ms":-1} {"token":"x"} [] { {"x":1}"#)
    {
        cases.push(Case::body(&line, body, INVALID));
    }
    // These requests are refused before a stream begins.
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
