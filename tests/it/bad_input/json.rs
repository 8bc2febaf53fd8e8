//! JSON: cut at every byte, ambiguous, deep, of another kind, and not JSON at all.

use super::{
    bench::{Bench, HELD, PLANTED},
    case::{Case, Expected, INVALID},
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

pub(super) fn cases() -> Vec<Case> {
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
        cases.push(Case::new(line, &[], body.as_bytes(), INVALID));
    }
    cases
}

#[tokio::test]
async fn nothing_is_a_body_that_could_be_read_in_two_ways() {
    Bench::start().await.run(cases()).await;
}
