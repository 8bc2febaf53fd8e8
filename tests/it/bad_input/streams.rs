//! Streams: what is refused before one begins, and what one may be asked with.

use super::{
    bench::{Bench, HELD},
    case::{Case, Expected, INVALID},
};

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let not_acceptable = Expected::Refused(406, "not-acceptable");
    for line in ["GET /events", "POST /locks/a/hold"] {
        for accept in [
            "text/html",
            "application/xml",
            "text/event-stream;q=0",
            "image/*",
            "x",
        ] {
            cases.push(Case::new(line, &[("Accept", accept)], b"", not_acceptable));
        }
    }
    for query in [
        "x=1",
        "prefix=a&prefix=b",
        "prefix=%FF",
        "prefix={a}",
        "prefix=a/b",
        "prefix=a%00",
        "limit=1",
        "Prefix=a",
    ] {
        cases.push(Case::new(
            &format!("GET /events?{query}"),
            &[],
            b"",
            INVALID,
        ));
    }
    let long = format!("GET /events?prefix={}", "a".repeat(201));
    cases.push(Case::new(&long, &[], b"", INVALID));
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
        cases.push(Case::new(&line, &[], body.as_bytes(), INVALID));
    }
    // Before any stream begins.
    cases.push(Case::new(&line, &[], b"", Expected::Refused(423, "locked")));
    let query = format!("{line}?ttl_ms=1000");
    cases.push(Case::new(&query, &[], b"", INVALID));
    for query in [
        "cursor=x",
        "cursor=AAAAAAAAAAAAAAAAAAAAAAAA",
        "cursor=",
        "cursor=%00",
        "owner=",
        "owner=a%0ab",
        "search=",
        "search=%FF",
        "prefix=*",
        "prefix=a&x=1",
        "limit=10&limit=10",
        "%FF=1",
        "prefix=%ZZ",
    ] {
        cases.push(Case::new(&format!("GET /locks?{query}"), &[], b"", INVALID));
    }
    cases
}

#[tokio::test]
async fn no_stream_begins_that_should_not() {
    Bench::start().await.run(cases()).await;
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
