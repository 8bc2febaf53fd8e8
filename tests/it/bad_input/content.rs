//! Content types, codings and what the answer may be.

use crate::support::operations::operations;

use super::{
    bench::Bench,
    case::{Case, Expected, INVALID},
};

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
fn cases() -> Vec<Case> {
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
            cases.push(Case::new(&line, &[("Accept", accept)], b"", not_acceptable));
        }
        for accept in [
            "application/json;q=x",
            "a/b/c, */*",
            ";",
            ",,,",
            "*/*;q=1.0000000000",
        ] {
            cases.push(Case::new(&line, &[("Accept", accept)], b"", Expected::Sane));
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
    cases.push(Case::new("POST /locks/a", &[("x", &long)], b"", large));
    cases
}

#[tokio::test]
async fn nothing_is_read_that_is_no_json() {
    Bench::start().await.run(cases()).await;
}
