//! Invalid names, numbers, tokens, idempotency keys, owners and metadata.

use std::fmt::Write;

use serde_json::json;

use super::bench::{Bench, Case, Expected, HELD, INVALID, PLANTED};
use crate::support::{
    operations::{Operation, operations},
    words,
};

/// Names that are valid in a path, but not as names of locks.
const NO_NAMES: &str = r"
    . .. %2e %2E%2E %2e. ..%2f..%2fetc%2fpasswd ..%5c..%5cwindows %2fetc%2fpasswd a%5cb a%00
    %00 a%0a a%0d%0aSet-Cookie:%20x=1 a%20b a+b %7Ba%7D {a} a{b a* %2A a%3Fb a%5Bb-c%5D
    %24%7Bjndi:ldap:%7D a;b a,b a=b a&b a'b a!b a$b a(b) %3Cscript%3E
    %2A1%0D%0A%244%0D%0APING%0D%0A a%0D%0ADEL%20lg:x:lock return%20redis.call('FLUSHALL')
    %2f a%2f %2fa a%2F%2Fb a%2f%2F a%2f. a%2f.%2fb a%2F..%2Fb ..%2Fa %2e%2e%2fa a%2f%2e%2e .%2f
    a%252fb %252F a%c0%afb %5c%5ca a%2f%5cb x%2fhold x%2Frenew x%2frelease x%2fbreak x%2fcheck
    x%2fhistory x%2Fy%2Fhold x%2f%68old renew%2frenew locks%2f..%2fb
    %252e%252e %25 a%2500 %EF%BC%8E%EF%BC%8E %E2%80%AEa %F0%9F%94%92
";
/// Percent-encoded bytes that are not UTF-8.
const NO_TEXT: &str = r"
    %FF %C0%AF %C0%80 %E0%80%AF %ED%A0%80 %F5%80%80%80 a%80 %C3
";

fn of_every_route(name: &str) -> impl Iterator<Item = Case> {
    let of_locks = operations().into_iter().filter(Operation::names_lock);
    of_locks.map(move |operation| Case::bare(operation.line(name), INVALID))
}

pub(super) fn names_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let long = |len| "a".repeat(len);
    let too_long = [long(201), long(255), long(1_024), long(4_000)];
    let encoded = "%61".repeat(201);
    let texts = words(NO_NAMES).chain(words(NO_TEXT));
    for name in texts
        .chain(too_long.iter().map(String::as_str))
        .chain([encoded.as_str()])
    {
        cases.extend(of_every_route(name));
    }
    for byte in 0..=u8::MAX {
        let allowed = byte.is_ascii_alphanumeric() || b"._:@~-/".contains(&byte);
        let expected = if allowed { Expected::Granted } else { INVALID };
        cases.push(Case::bare(format!("POST /locks/a%{byte:02X}b"), expected));
        if !allowed && !b"?#%".contains(&byte) {
            // The byte is sent unencoded: the HTTP parser decides whether it reads the request.
            let mut bytes = b"POST /locks/a".to_vec();
            bytes.push(byte);
            bytes.extend_from_slice(b"b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
            cases.push(Case::raw(bytes, Expected::Declined));
        }
    }
    for (target, expected) in [
        ("/locks/", Expected::Refused(404, "not-found")),
        ("/locks//", Expected::Refused(404, "not-found")),
        ("/locks/a/b", Expected::Refused(404, "not-found")),
        ("/locks//a", Expected::Refused(404, "not-found")),
        ("//locks/a", Expected::Refused(404, "not-found")),
        ("/locks/a/", Expected::Refused(404, "not-found")),
        ("/LOCKS/a", Expected::Refused(404, "not-found")),
        ("/locks%2Fa", Expected::Refused(404, "not-found")),
        ("/locks/../locks/a", Expected::Declined),
        ("/locks/%", INVALID),
        ("/locks/a%2", INVALID),
        ("/locks/a%zz", INVALID),
        ("/locks/a?", Expected::Granted),
        ("/locks/a?b", INVALID),
        ("/locks/a?ttl_ms=1000", INVALID),
    ] {
        cases.push(Case::bare(format!("POST {target}"), expected));
    }
    let longest = format!("POST /locks/{}", long(200));
    cases.push(Case::bare(longest, Expected::Granted));
    let target = format!("GET /locks/{}", long(5_000));
    cases.push(Case::bare(target, Expected::Refused(414, "uri-too-long")));
    cases
}

#[tokio::test]
async fn nothing_is_a_name_that_should_not_be() {
    Bench::start().await.run(names_cases()).await;
}

/// JSON values that no numeric field accepts.
const NO_NUMBERS: &str = r#"
    -1 -0 -0.0 -9223372036854775808 -9223372036854775809 0.5 30000.5 9007199254740992.0 1e400
    -1e400 0x10 0b1 010 +1 .5 5. 1_000 1,000 NaN Infinity -Infinity "30000" "" true false
    [30000] {} [] 30000ms 18446744073709551616
"#;
/// Numbers above every limit.
const TOO_LARGE: &str = r"
    604800001 2147483648 4294967296 9007199254740992 9223372036854775807 9223372036854775808
    18446744073709551614 18446744073709551615 99999999999999999999999999999999999999
";

fn numbers_cases(token: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for field in ["ttl_ms", "wait_ms", "max_hold_ms", "min_hold_ms", "limit"] {
        for number in words(NO_NUMBERS).chain(words(TOO_LARGE)) {
            let body = format!("{{\"{field}\": {number}}}");
            cases.push(Case::acquire(body, INVALID));
        }
    }
    for number in ["0", "1", "99", "86400001"] {
        cases.push(Case::acquire(format!("{{\"ttl_ms\": {number}}}"), INVALID));
    }
    for number in ["0", "1001", "9999", "10000", "65536", "65537"] {
        let body = format!("{{\"mode\": \"shared\", \"limit\": {number}}}");
        cases.push(Case::acquire(body, INVALID));
    }
    cases.push(Case::acquire("{\"wait_ms\": 55001}", INVALID));
    cases.push(Case::acquire(
        "{\"ttl_ms\": 1000, \"max_hold_ms\": 999}",
        INVALID,
    ));
    // A lock that rests would not be free for the next case.
    for (number, expected) in [("1", Expected::Granted), ("1001", INVALID)] {
        let body = format!("{{\"ttl_ms\": 1000, \"min_hold_ms\": {number}}}");
        cases.push(Case::acquire(body, expected));
    }
    let long = "1".repeat(10_000);
    cases.push(Case::acquire(format!("{{\"ttl_ms\": {long}}}"), INVALID));
    // With the token of the lease, only the number is wrong.
    let with_token = [("Lock-Token", token)];
    let (renew, hold) = (
        format!("PUT /locks/{HELD}/renew"),
        format!("POST /locks/{HELD}/hold"),
    );
    for number in words(NO_NUMBERS)
        .chain(words(TOO_LARGE))
        .chain(["0", "1", "99"])
    {
        let body = format!("{{\"ttl_ms\": {number}}}");
        for line in [&renew, &hold] {
            cases.push(Case::new(line, &with_token, body.as_bytes(), INVALID));
        }
    }
    let line = format!("POST /locks/{HELD}/break");
    for number in words(NO_NUMBERS)
        .chain(words(TOO_LARGE).skip(3))
        .chain(["0"])
    {
        let body = format!("{{\"reason\": \"x\", \"fencing_token\": {number}}}");
        cases.push(Case::body(&line, body, INVALID));
    }
    for flag in ["1", "0", "\"true\"", "\"\"", "[true]", "{}", "TRUE"] {
        let body = format!("{{\"reason\": \"x\", \"all\": {flag}}}");
        cases.push(Case::body(&line, body, INVALID));
    }
    let both = b"{\"reason\": \"x\", \"all\": true, \"fencing_token\": 1}";
    cases.push(Case::body(&line, both, INVALID));
    let limits = words("0 -1 1001 1.0 1e3 +1 %2B1 0x1 NaN 18446744073709551616");
    for limit in limits.chain([""]) {
        cases.push(Case::bare(format!("GET /locks?limit={limit}"), INVALID));
    }
    let check = format!("GET /locks/{HELD}/check");
    let no_fences = words("0 -1 +1 1.0 1e3 0x1 NaN one 1,2 9007199254740992 18446744073709551616");
    for fence in no_fences.chain(["", "1 2", "\"1\"", PLANTED]) {
        let header = [("Fencing-Token", fence)];
        cases.push(Case::new(&check, &header, b"", INVALID));
    }
    let twice = [("Fencing-Token", "1"), ("Fencing-Token", "1")];
    cases.push(Case::new(&check, &twice, b"", INVALID));
    for time in words("-1 +1 1.0 1e3 0x1 NaN 30s 86400001 18446744073709551616").chain([""]) {
        let line = format!("{check}?for_ms={time}");
        cases.push(Case::new(&line, &[("Fencing-Token", "1")], b"", INVALID));
    }
    let stale = Expected::Refused(403, "stale-fencing-token");
    for fence in ["1", "007", "9007199254740991"] {
        let header = [("Fencing-Token", fence)];
        cases.push(Case::new(&check, &header, b"", stale));
    }
    let lengths = words("-1 +2 0x2 2.0 18446744073709551616 two 2,2");
    for length in lengths.chain(["2 2", "", "2, 3"]) {
        let request = format!(
            "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{{}}"
        );
        cases.push(Case::raw(request, Expected::Declined));
    }
    cases
}

#[tokio::test]
async fn no_number_is_taken_for_another() {
    let bench = Bench::start().await;
    let cases = numbers_cases(bench.token());
    bench.run(cases).await;
}

/// The answer to a token without a lease.
const LOST: Expected = Expected::Refused(410, "lease-lost");
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn lines(lock: &str) -> Vec<String> {
    let of_leases = operations().into_iter();
    let of_leases = of_leases.filter(|it| it.names_lock() && it.takes("Lock-Token"));
    of_leases.map(|it| it.line(lock)).collect()
}

fn tokens_cases(token: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let lines = lines(HELD);
    let mut no_tokens: Vec<String> = ["", "x", " ", "null", "undefined", "*", "0", PLANTED]
        .map(str::to_owned)
        .into();
    no_tokens.extend([
        token[..42].to_owned(),
        token[1..].to_owned(),
        format!("{token}A"),
        format!("{token}="),
        format!("A{token}"),
        format!("{token}{token}"),
        format!("Bearer {token}"),
        format!("\"{token}\""),
        format!("{token}, {token}"),
        format!("{token};"),
        token.replace(&token[10..11], "+"),
        token.replace(&token[10..11], "/"),
        token.replace(&token[10..11], "%41"),
        "A".repeat(8_000),
        "\u{e4}".repeat(43),
    ]);
    for line in &lines {
        for text in &no_tokens {
            cases.push(Case::with(line, ("Lock-Token", text), INVALID));
        }
        let twice = [("Lock-Token", token), ("lock-token", token)];
        cases.push(Case::new(line, &twice, b"", INVALID));
        // The token is sent in places where it does not count.
        for header in ["Authorization", "X-Lock-Token", "Lock_Token", "Cookie"] {
            let expected = if line.ends_with("/hold") {
                // Without a token it asks for the lock, which is held.
                Expected::Refused(423, "locked")
            } else {
                INVALID
            };
            cases.push(Case::with(line, (header, token), expected));
        }
        let target = format!("{line}?token={token}");
        cases.push(Case::with(target, ("Lock-Token", token), INVALID));
    }
    for line in &lines[1..3] {
        let other = format!("{{\"token\": \"{}\"}}", "A".repeat(43));
        let header = [("Lock-Token", token)];
        cases.push(Case::new(line, &header, other.as_bytes(), INVALID));
        for body in words(r#"{"token":1} {"token":"x"} {"token":[]} {"token":""}"#) {
            cases.push(Case::body(line, body, INVALID));
        }
    }
    // One bit of each character is changed, which makes another token without a lease. The last character has two bits
    // that belong to no byte, and no token has them set.
    for at in 0..token.len() {
        let mut other = token.as_bytes().to_vec();
        let digit = ALPHABET
            .iter()
            .position(|digit| *digit == other[at])
            .unwrap();
        other[at] = ALPHABET[digit ^ 0b10_0000];
        let other = String::from_utf8(other).unwrap();
        for line in &lines {
            cases.push(Case::with(line, ("Lock-Token", &other), LOST));
        }
    }
    let mut padded = token.as_bytes().to_vec();
    let last = ALPHABET
        .iter()
        .position(|digit| digit == padded.last().unwrap())
        .unwrap();
    *padded.last_mut().unwrap() = ALPHABET[last | 1];
    let padded = String::from_utf8(padded).unwrap();
    cases.push(Case::with(&lines[1], ("Lock-Token", &padded), INVALID));
    // A token counts only for its own lock.
    for line in self::lines("other").iter().chain(&self::lines("witness2")) {
        cases.push(Case::with(line, ("Lock-Token", token), LOST));
    }
    cases
}

#[tokio::test]
async fn no_token_but_its_own_touches_a_lease() {
    let bench = Bench::start().await;
    let cases = tokens_cases(bench.token());
    bench.run(cases).await;
}

fn idempotency_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let key = |key: &str, body: &str, expected| {
        let header = [("Idempotency-Key", key)];
        Case::new("POST /locks/a", &header, body.as_bytes(), expected)
    };
    for length in (0..16).chain([129, 200, 5_000]) {
        cases.push(key(&"k".repeat(length), "", INVALID));
    }
    for length in [16, 22, 36, 128] {
        cases.push(key(&format!("{length:k>length$}"), "", Expected::Granted));
    }
    for odd in [
        "a key with spaces in it, long",
        "a-key-with-a-\u{e4}-in-it-long-enough",
        "a-key-with-a-\t-in-it-long-enough-",
        "\u{1f512}\u{1f512}\u{1f512}\u{1f512}\u{1f512}\u{1f512}",
    ] {
        cases.push(key(odd, "", INVALID));
    }
    let twice = [("Idempotency-Key", PLANTED), ("idempotency-key", PLANTED)];
    cases.push(Case::new("POST /locks/a", &twice, b"", INVALID));
    for line in ["POST /locks/a/hold", "POST /locks/a"] {
        for short in ["", "x", "0b2f6a4e"] {
            cases.push(Case::with(line, ("Idempotency-Key", short), INVALID));
        }
    }
    // The idempotency key is used up by the released lease.
    let used = "7c0d9d0a-2b51-4f0e-8a6e-0d6a3b1c9e55";
    cases.push(key(used, "", Expected::Granted));
    let expired = Expected::Refused(409, "idempotency-expired");
    let bodies = words(r#"{} {"ttl_ms":1000} {"owner":"x"} {"wait_ms":100}"#);
    cases.extend(bodies.chain([""]).map(|body| key(used, body, expired)));
    cases
}

#[tokio::test]
async fn a_key_that_is_none_or_used_takes_no_lock() {
    let cases = idempotency_cases();
    let mut bench = Bench::start().await;
    bench.keep_secret("7c0d9d0a-2b51-4f0e-8a6e-0d6a3b1c9e55");
    bench.run(cases).await;
}

/// Texts that are dangerous only for careless readers: the gateway stores them unchanged.
const HOSTILE: &str = "
    <script>alert(1)</script> javascript:alert(1) {{7*7}} ${jndi:ldap://x} %s%n%x `id` $(id)
    ../../etc/passwd *3\\r\\n$3\\r\\nSET redis.call('FLUSHALL') __proto__ constructor
    hasOwnProperty \u{202e}gnp.exe \u{200b} \u{feff} e\u{301}\u{301}\u{301} \u{1f512} \u{10ffff}
    \\u0000
";
/// Such texts with blanks.
const HOSTILE_TOO: [&str; 2] = ["\"><img src=x onerror=alert(1)>", "' OR 1=1 --"];
/// Texts with control characters, which would move a terminal's cursor or begin another line.
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

pub(super) fn metadata_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let body = |body: serde_json::Value, expected| Case::acquire(body.to_string(), expected);
    let hostile = words(HOSTILE).chain(HOSTILE_TOO);
    let hostile = hostile.map(|text| (text, Expected::Granted));
    for (text, expected) in hostile.chain(CONTROL.map(|text| (text, INVALID))) {
        cases.push(body(json!({"owner": text}), expected));
        cases.push(body(json!({"metadata": {"a": text}}), expected));
        cases.push(body(json!({"metadata": {text: "a"}}), expected));
    }
    let long = |len| "ä".repeat(len);
    cases.push(body(json!({"owner": long(128)}), Expected::Granted));
    cases.push(body(json!({"owner": long(129)}), INVALID));
    cases.push(body(json!({"supersedes": long(64)}), Expected::Granted));
    cases.push(body(json!({"supersedes": long(65)}), INVALID));
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
        let body = format!("{{\"metadata\":{{{metadata}}}}}");
        cases.push(Case::acquire(body, expected));
    }
    for metadata in words(r#"[] "a" 1 true {"":"a"} {"a":1} {"a":null} {"a":{}} {"a":["b"]}"#) {
        let body = format!("{{\"metadata\":{metadata}}}");
        cases.push(Case::acquire(body, INVALID));
    }
    cases
}

#[tokio::test]
async fn hostile_texts_are_kept_or_refused_and_harm_nobody() {
    Bench::start().await.run(metadata_cases()).await;
}

/// JSON values that are no lock of a group.
const NO_LOCKS: &str = r#"
    null true 7 -1 0.5 [] ["b"] [{"name":"b"}] "" "." ".." "b,c" "b\u0000" "b=2" {} {"name":null}
    {"name":""} {"name":7} {"name":["b"]} {"name":{"name":"b"}} {"name":".."} {"name":"b=2"}
    {"name":"b\n"} {"Name":"b"} {"names":["b","c"]} {"name":"b","name":"c"} {"name":"a"}
    {"name":"b","mode":""} {"name":"b","mode":"Shared"} {"name":"b","mode":"shared "}
    {"name":"b","mode":1} {"name":"b","mode":true} {"name":"b","mode":["shared"]}
    {"name":"b","mode":"exclusive","limit":2} {"name":"b","mode":"shared","mode":"exclusive"}
    {"name":"b","limit":0} {"name":"b","limit":1001} {"name":"b","limit":65537}
    {"name":"b","ttl_ms":1000} {"name":"b","wait_ms":0} {"name":"b","owner":"me"}
    {"name":"b","metadata":{}} {"name":"b","slot":0} {"name":"b","token":"x"} {"name":"b","":1}
"#;

fn groups_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut refused = |body: String| cases.push(Case::body("POST /locks", body, INVALID));
    for lock in words(NO_LOCKS) {
        refused(format!("{{\"names\":[\"a\",{lock}]}}"));
        refused(format!(
            "{{\"names\":[{lock},\"a\",\"c\"],\"ttl_ms\":1000}}"
        ));
    }
    for number in words(NO_NUMBERS).chain(words(TOO_LARGE)) {
        refused(format!(
            "{{\"names\":[\"a\",{{\"name\":\"b\",\"limit\":{number}}}]}}"
        ));
    }
    for beside in words(
        r#""mode":"shared" "mode":"exclusive" "limit":2 "mode":7 "limit":null,"mode":"shared""#,
    ) {
        refused(format!("{{\"names\":[\"a\",{{\"name\":\"b\"}}],{beside}}}"));
    }
    for count in [0, 1, 17, 500] {
        let locks: Vec<_> = (0..count)
            .map(|n| json!({"name": format!("n{n}"), "limit": 2}))
            .collect();
        refused(json!({"names": locks}).to_string());
    }
    let deep = format!("{}\"b\"{}", "{\"name\":".repeat(100), "}".repeat(100));
    refused(format!("{{\"names\":[\"a\",{deep}]}}"));
    cases
}

#[tokio::test]
async fn what_is_no_lock_of_a_group_takes_none() {
    Bench::start().await.run(groups_cases()).await;
}
