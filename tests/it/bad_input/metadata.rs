//! Owners and metadata: hostile texts that are kept as they are, and those that are refused.

use std::fmt::Write;

use serde_json::json;

use super::{
    bench::Bench,
    case::{Case, Expected, INVALID},
};

/// Texts that are nobody's business but the reader's: they are kept.
const HOSTILE: [&str; 22] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "%s%n%x",
    "' OR 1=1 --",
    "`id`",
    "$(id)",
    "../../etc/passwd",
    "*3\\r\\n$3\\r\\nSET",
    "redis.call('FLUSHALL')",
    "__proto__",
    "constructor",
    "hasOwnProperty",
    "\u{202e}gnp.exe",
    "\u{200b}",
    "\u{feff}",
    "e\u{301}\u{301}\u{301}",
    "\u{1f512}",
    "\u{10ffff}",
    "\\u0000",
];
/// Texts with control characters, which would move a terminal or begin another line.
const CONTROL: [&str; 9] = [
    "a\nb",
    "a\r\nX: y",
    "\t",
    "\u{0}",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{9b}31m",
    "\u{8}",
];

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let body = |body: serde_json::Value, expected| Case::acquire(body.to_string(), expected);
    for (texts, expected) in [(&HOSTILE[..], Expected::Granted), (&CONTROL[..], INVALID)] {
        for &text in texts {
            cases.push(body(json!({"owner": text}), expected));
            cases.push(body(json!({"metadata": {"a": text}}), expected));
            cases.push(body(json!({"metadata": {text: "a"}}), expected));
        }
    }
    let long = |len| "ä".repeat(len);
    cases.push(body(json!({"owner": long(128)}), Expected::Granted));
    cases.push(body(json!({"owner": long(129)}), INVALID));
    for (entries, bytes, expected) in [
        (16, 1, Expected::Granted),
        (17, 1, INVALID),
        (500, 1, INVALID),
        (1, 2_047, Expected::Granted),
        (1, 2_048, INVALID),
        (2, 1_024, INVALID),
        (1, 15_000, INVALID),
    ] {
        let mut metadata = String::new();
        for entry in 0..entries {
            let name = char::from_u32(0x4e00 + entry).unwrap();
            let name = if entries == 1 { 'a' } else { name };
            write!(metadata, ",\"{name}\":\"{}\"", "v".repeat(bytes)).unwrap();
        }
        let metadata = metadata.trim_start_matches(',');
        cases.push(Case::acquire(
            format!("{{\"metadata\":{{{metadata}}}}}"),
            expected,
        ));
    }
    for metadata in [
        "[]",
        "\"a\"",
        "1",
        "true",
        "{\"\":\"a\"}",
        "{\"a\":1}",
        "{\"a\":null}",
        "{\"a\":{}}",
        "{\"a\":[\"b\"]}",
    ] {
        cases.push(Case::acquire(
            format!("{{\"metadata\":{metadata}}}"),
            INVALID,
        ));
    }
    cases
}

#[tokio::test]
async fn hostile_texts_are_kept_or_refused_and_harm_nobody() {
    Bench::start().await.run(cases()).await;
}
