//! Tokens: missing, wrong, of another lock, with one bit changed, huge, and in the wrong place.

use crate::support::operations::operations;

use super::{
    bench::{Bench, HELD, PLANTED},
    case::{Case, Expected, INVALID},
};

/// The token holds nothing.
const LOST: Expected = Expected::Refused(410, "lease-lost");
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn lines(lock: &str) -> Vec<String> {
    let of_leases = operations().into_iter();
    let of_leases = of_leases.filter(|it| it.names_lock() && it.takes("Lock-Token"));
    of_leases.map(|it| it.line(lock)).collect()
}

fn cases(token: &str) -> Vec<Case> {
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
            cases.push(Case::new(line, &[("Lock-Token", text)], b"", INVALID));
        }
        let twice = [("Lock-Token", token), ("lock-token", token)];
        cases.push(Case::new(line, &twice, b"", INVALID));
        // In a place where it counts for nothing.
        for header in ["Authorization", "X-Lock-Token", "Lock_Token", "Cookie"] {
            let expected = if line.ends_with("/hold") {
                // Without a token it asks for the lock, which is held.
                Expected::Refused(423, "locked")
            } else {
                INVALID
            };
            cases.push(Case::new(line, &[(header, token)], b"", expected));
        }
        let target = format!("{line}?token={token}");
        cases.push(Case::new(&target, &[("Lock-Token", token)], b"", INVALID));
    }
    for line in &lines[1..3] {
        let other = format!("{{\"token\": \"{}\"}}", "A".repeat(43));
        let header = [("Lock-Token", token)];
        cases.push(Case::new(line, &header, other.as_bytes(), INVALID));
        for body in [
            "{\"token\": 1}",
            "{\"token\": \"x\"}",
            "{\"token\": []}",
            "{\"token\": \"\"}",
        ] {
            cases.push(Case::new(line, &[], body.as_bytes(), INVALID));
        }
    }
    // One bit of each character: another token, which holds nothing. The last character has two bits that
    // belong to no byte, and no token has them set.
    for at in 0..token.len() {
        let mut other = token.as_bytes().to_vec();
        let digit = ALPHABET
            .iter()
            .position(|digit| *digit == other[at])
            .unwrap();
        other[at] = ALPHABET[digit ^ 0b10_0000];
        let other = String::from_utf8(other).unwrap();
        for line in &lines {
            cases.push(Case::new(line, &[("Lock-Token", &other)], b"", LOST));
        }
    }
    let mut padded = token.as_bytes().to_vec();
    let last = ALPHABET
        .iter()
        .position(|digit| digit == padded.last().unwrap())
        .unwrap();
    *padded.last_mut().unwrap() = ALPHABET[last | 1];
    let padded = String::from_utf8(padded).unwrap();
    cases.push(Case::new(
        &lines[1],
        &[("Lock-Token", &padded)],
        b"",
        INVALID,
    ));
    // A token of a lock is none of another.
    for line in self::lines("other").iter().chain(&self::lines("witness2")) {
        cases.push(Case::new(line, &[("Lock-Token", token)], b"", LOST));
    }
    cases
}

#[tokio::test]
async fn no_token_but_its_own_touches_a_lease() {
    let bench = Bench::start().await;
    let cases = cases(bench.token());
    bench.run(cases).await;
}
