//! Names: length, traversal, encoding, braces, globs, fragments of protocols and languages.

use crate::support::operations::{Operation, operations};

use super::{
    bench::Bench,
    case::{Case, Expected, INVALID},
};

/// As they stand in the path, each valid there and invalid as a name.
const NO_NAMES: [&str; 42] = [
    ".",
    "..",
    "%2e",
    "%2E%2E",
    "%2e.",
    "..%2f..%2fetc%2fpasswd",
    "..%5c..%5cwindows",
    "%2fetc%2fpasswd",
    "a%2fb",
    "a%5cb",
    "a%00",
    "%00",
    "a%0a",
    "a%0d%0aSet-Cookie:%20x=1",
    "a%20b",
    "a+b",
    "%7Ba%7D",
    "{a}",
    "a{b",
    "a*",
    "%2A",
    "a%3Fb",
    "a%5Bb-c%5D",
    "%24%7Bjndi:ldap:%7D",
    "a;b",
    "a,b",
    "a=b",
    "a&b",
    "a'b",
    "a!b",
    "a$b",
    "a(b)",
    "%3Cscript%3E",
    "%2A1%0D%0A%244%0D%0APING%0D%0A",
    "a%0D%0ADEL%20lg:x:lock",
    "return%20redis.call('FLUSHALL')",
    "%252e%252e",
    "%25",
    "a%2500",
    "%EF%BC%8E%EF%BC%8E",
    "%E2%80%AEa",
    "%F0%9F%94%92",
];
/// Percent-encoded bytes that are no UTF-8.
const NO_TEXT: [&str; 8] = [
    "%FF",
    "%C0%AF",
    "%C0%80",
    "%E0%80%AF",
    "%ED%A0%80",
    "%F5%80%80%80",
    "a%80",
    "%C3",
];

fn of_every_route(name: &str) -> impl Iterator<Item = Case> {
    let of_locks = operations().into_iter().filter(Operation::names_lock);
    of_locks.map(move |operation| Case::new(&operation.line(name), &[], b"", INVALID))
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let long = |len| "a".repeat(len);
    let too_long = [long(201), long(255), long(1_024), long(4_000)];
    let encoded = "%61".repeat(201);
    let texts = NO_NAMES.into_iter().chain(NO_TEXT);
    for name in texts
        .chain(too_long.iter().map(String::as_str))
        .chain([encoded.as_str()])
    {
        cases.extend(of_every_route(name));
    }
    for byte in 0..=u8::MAX {
        let allowed = byte.is_ascii_alphanumeric() || b"._:@~-".contains(&byte);
        let expected = if allowed { Expected::Granted } else { INVALID };
        cases.push(Case::new(
            &format!("POST /locks/a%{byte:02X}b"),
            &[],
            b"",
            expected,
        ));
        if !allowed && !b"?#%/".contains(&byte) {
            // As it is: whether it is read at all is up to the reader of HTTP.
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
        cases.push(Case::new(&format!("POST {target}"), &[], b"", expected));
    }
    let longest = format!("POST /locks/{}", long(200));
    cases.push(Case::new(&longest, &[], b"", Expected::Granted));
    let target = format!("GET /locks/{}", long(5_000));
    cases.push(Case::new(
        &target,
        &[],
        b"",
        Expected::Refused(414, "uri-too-long"),
    ));
    cases
}

#[tokio::test]
async fn nothing_is_a_name_that_should_not_be() {
    Bench::start().await.run(cases()).await;
}
