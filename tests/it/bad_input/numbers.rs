//! Numbers where milliseconds, tokens and limits are expected.

use super::{
    bench::{Bench, HELD},
    case::{Case, INVALID},
};

/// No JSON number that any field takes.
const NO_NUMBERS: [&str; 30] = [
    "-1",
    "-0",
    "-0.0",
    "-9223372036854775808",
    "-9223372036854775809",
    "0.5",
    "30000.5",
    "9007199254740992.0",
    "1e400",
    "-1e400",
    "0x10",
    "0b1",
    "010",
    "+1",
    ".5",
    "5.",
    "1_000",
    "1,000",
    "NaN",
    "Infinity",
    "-Infinity",
    "\"30000\"",
    "\"\"",
    "true",
    "false",
    "[30000]",
    "{}",
    "[]",
    "30000ms",
    "18446744073709551616",
];
/// Numbers beyond every limit.
const TOO_LARGE: [&str; 9] = [
    "604800001",
    "2147483648",
    "4294967296",
    "9007199254740992",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551614",
    "18446744073709551615",
    "99999999999999999999999999999999999999",
];

fn cases(token: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for field in ["ttl_ms", "wait_ms", "max_hold_ms", "limit"] {
        for number in NO_NUMBERS.into_iter().chain(TOO_LARGE) {
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
    let long = "1".repeat(10_000);
    cases.push(Case::acquire(format!("{{\"ttl_ms\": {long}}}"), INVALID));
    // With the token that holds it: what is wrong is the number alone.
    let with_token = [("Lock-Token", token)];
    let (renew, hold) = (
        format!("PUT /locks/{HELD}/renew"),
        format!("POST /locks/{HELD}/hold"),
    );
    for number in NO_NUMBERS
        .into_iter()
        .chain(TOO_LARGE)
        .chain(["0", "1", "99"])
    {
        let body = format!("{{\"ttl_ms\": {number}}}");
        for line in [&renew, &hold] {
            cases.push(Case::new(line, &with_token, body.as_bytes(), INVALID));
        }
    }
    let line = format!("POST /locks/{HELD}/break");
    for number in NO_NUMBERS
        .into_iter()
        .chain(TOO_LARGE.into_iter().skip(3))
        .chain(["0"])
    {
        let body = format!("{{\"reason\": \"x\", \"fencing_token\": {number}}}");
        cases.push(Case::new(&line, &[], body.as_bytes(), INVALID));
    }
    for flag in ["1", "0", "\"true\"", "\"\"", "[true]", "{}", "TRUE"] {
        let body = format!("{{\"reason\": \"x\", \"all\": {flag}}}");
        cases.push(Case::new(&line, &[], body.as_bytes(), INVALID));
    }
    let both = b"{\"reason\": \"x\", \"all\": true, \"fencing_token\": 1}";
    cases.push(Case::new(&line, &[], both, INVALID));
    for limit in [
        "",
        "0",
        "-1",
        "1001",
        "1.0",
        "1e3",
        "+1",
        "%2B1",
        "0x1",
        "NaN",
        "18446744073709551616",
    ] {
        cases.push(Case::new(
            &format!("GET /locks?limit={limit}"),
            &[],
            b"",
            INVALID,
        ));
    }
    for length in [
        "-1",
        "+2",
        "0x2",
        "2.0",
        "2 2",
        "18446744073709551616",
        "",
        "two",
        "2,2",
        "2, 3",
    ] {
        let request = format!(
            "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{{}}"
        );
        cases.push(Case::raw(request, super::case::Expected::Declined));
    }
    cases
}

#[tokio::test]
async fn no_number_is_taken_for_another() {
    let bench = Bench::start().await;
    let cases = cases(bench.token());
    bench.run(cases).await;
}
