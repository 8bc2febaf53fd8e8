//! What a web page of elsewhere may send from somebody's browser, and names that lead to loopback.

use crate::support::operations::{Operation, operations};

use super::{
    bench::{Bench, HELD},
    case::{Case, Expected},
};

const REFUSED: Expected = Expected::Refused(403, "origin-refused");
const WRONG_HOST: Expected = Expected::Refused(421, "wrong-host");
const FOREIGN: [(&str, &str); 16] = [
    ("Origin", "https://evil.example"),
    ("Origin", "null"),
    ("Origin", ""),
    ("Origin", "http://localhost"),
    ("Origin", "http://localhost:1"),
    ("Origin", "https://localhost"),
    ("Origin", "http://localhost.evil.example"),
    ("Origin", "http://localhost@evil.example"),
    ("Origin", "file://"),
    ("Origin", "chrome-extension://abcdefgh"),
    ("Origin", "*"),
    ("Origin", "http://localhost:7420, https://evil.example"),
    ("Sec-Fetch-Site", "cross-site"),
    ("Sec-Fetch-Site", "same-site"),
    ("Sec-Fetch-Site", "x"),
    ("Sec-Fetch-Site", ""),
];
const HOSTS: [&str; 16] = [
    "evil.example",
    "evil.example:7420",
    "localhost.evil.example",
    "a.localhost",
    "127.0.0.1.evil.example",
    "127.0.0.1.nip.io",
    "0.0.0.0",
    "[::]",
    "192.0.2.1",
    "127.1",
    "2130706433",
    "0x7f000001",
    "017700000001",
    "[2001:db8::1]",
    "xn--lcalhost-55a",
    "metadata",
];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let guarded = operations().into_iter().filter(Operation::is_guarded);
    for line in guarded.map(|it| it.line(HELD)) {
        for header in FOREIGN {
            // On another port, so that no origin here is the gateway's own.
            let headers = [("Host", "localhost:7420"), header];
            cases.push(Case::new(&line, &headers, b"", REFUSED));
        }
    }
    for host in HOSTS {
        for line in [
            "POST /locks/a",
            "GET /locks",
            "DELETE /locks/witness",
            "GET /dashboard",
        ] {
            cases.push(Case::new(line, &[("Host", host)], b"", WRONG_HOST));
        }
    }
    for method in ["PUT", "POST", "DELETE", "x"] {
        let headers = [
            ("Origin", "https://evil.example"),
            ("Access-Control-Request-Method", method),
            ("Access-Control-Request-Headers", "lock-token"),
        ];
        // A preflight changes nothing; what counts is what it allows.
        cases.push(Case::new("OPTIONS /locks/a", &headers, b"", Expected::Sane));
    }
    cases
}

#[tokio::test]
async fn no_page_of_elsewhere_takes_or_releases_a_lock() {
    Bench::start().await.run(cases()).await;
}
