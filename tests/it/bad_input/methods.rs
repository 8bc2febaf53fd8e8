//! Every method on every route that does not take it.

use serde_json::Value;

use super::{
    bench::Bench,
    case::{Case, Expected},
};

const METHODS: [&str; 17] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "LOCK",
    "UNLOCK", "PURGE", "BREW", "get", "Post", "GETT", "X-Y_Z",
];

/// As the document lists them, and what each takes.
fn routes() -> Vec<(String, Vec<String>)> {
    let document = serde_json::to_value(latchgate::http::openapi()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let asked = |path: &str| path.replace("{name}", "a").replace("{code}", "locked");
    let route = |(path, item): (&String, &Value)| {
        let methods = item.as_object().unwrap().keys().map(|it| it.to_uppercase());
        (asked(path), methods.collect())
    };
    paths.iter().map(route).collect()
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (path, takes) in routes() {
        for method in METHODS {
            let reads = method == "HEAD" && takes.iter().any(|it| it == "GET");
            if reads || takes.iter().any(|it| it == method) {
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
            cases.push(Case::new(&format!("{method} {target}"), &[], b"", expected));
        }
    }
    let long = "A".repeat(10_000);
    cases.push(Case::new(
        &format!("{long} /locks/a"),
        &[],
        b"",
        Expected::Declined,
    ));
    cases
}

#[tokio::test]
async fn no_route_takes_a_method_that_it_does_not_list() {
    Bench::start().await.run(cases()).await;
}
