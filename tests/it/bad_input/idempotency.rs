//! Idempotency keys that are none, and those that are used for something else.

use super::{
    bench::{Bench, PLANTED},
    case::{Case, Expected, INVALID},
};

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let key = |key: &str, body: &str, expected| {
        Case::new(
            "POST /locks/a",
            &[("Idempotency-Key", key)],
            body.as_bytes(),
            expected,
        )
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
            cases.push(Case::new(line, &[("Idempotency-Key", short)], b"", INVALID));
        }
    }
    // It is used up by the lease that was released.
    let used = "7c0d9d0a-2b51-4f0e-8a6e-0d6a3b1c9e55";
    cases.push(key(used, "", Expected::Granted));
    for body in [
        "",
        "{}",
        "{\"ttl_ms\": 1000}",
        "{\"owner\": \"x\"}",
        "{\"wait_ms\": 100}",
    ] {
        cases.push(key(
            used,
            body,
            Expected::Refused(409, "idempotency-expired"),
        ));
    }
    cases
}

#[tokio::test]
async fn a_key_that_is_none_or_used_takes_no_lock() {
    let cases = cases();
    let mut bench = Bench::start().await;
    bench.keep_secret("7c0d9d0a-2b51-4f0e-8a6e-0d6a3b1c9e55");
    bench.run(cases).await;
}
