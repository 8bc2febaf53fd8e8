//! Every method on every route that does not take it.

use crate::support::operations::paths;

use super::{
    bench::Bench,
    case::{Case, Expected},
};

const METHODS: [&str; 17] = [
    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE", "CONNECT", "PROPFIND", "LOCK",
    "UNLOCK", "PURGE", "BREW", "get", "Post", "GETT", "X-Y_Z",
];

fn cases() -> Vec<Case> {
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
