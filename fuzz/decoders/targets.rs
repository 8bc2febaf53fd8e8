//! The decoders. Each answers a text about the outcome, and panics if the outcome cannot be right.

use std::fmt::Write;

use crate::{
    auth::fuzzed_token,
    http::fuzzed_body,
    lock::{IdempotencyKey, LockName, NamePrefix, Owner, Token},
    store::{
        embedded::fuzzed_row,
        redis::{fuzzed_quorum_reply, fuzzed_reply},
    },
};

/// Decodes bytes as a lock name, and as the other texts of a path or a header.
pub fn name(bytes: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return "no text".to_owned();
    };
    let mut outcome = match LockName::new(text) {
        Ok(name) => {
            let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:@~-/".contains(byte);
            let is_name =
                bytes.iter().all(allowed) && (1..=LockName::MAX_LEN).contains(&bytes.len());
            // If a proxy decodes the name, its path is not the path of another lock.
            let path = format!("/{name}/");
            let is_changed = ["//", "/./", "/../"].iter().any(|it| path.contains(it));
            let last = text.rsplit_once('/').map_or("", |(_, last)| last);
            let is_operation = LockName::OPERATIONS.contains(&last);
            assert!(is_name && !is_changed && !is_operation, "{name} is no name");
            assert_eq!(name.as_str(), text);
            assert!(NamePrefix::new(text).is_ok(), "{name} begins no name");
            "a name".to_owned()
        }
        Err(why) => why.to_string(),
    };
    let token = Token::parse(text);
    if let Ok(token) = &token {
        assert_eq!(token.expose(), text, "a token that is written in two ways");
    }
    let others = [
        token.is_ok(),
        NamePrefix::new(text).is_ok(),
        IdempotencyKey::new(text).is_ok(),
        Owner::new(text).is_ok(),
    ];
    write!(outcome, " {others:?}").expect("a string takes all");
    outcome
}

/// Decodes bytes as the body of every route that takes one.
pub fn body(bytes: &[u8]) -> String {
    fuzzed_body(bytes)
}

/// Decodes bytes as an ID token, as the keys of an issuer, and as a template with claims.
pub fn token(bytes: &[u8]) -> String {
    fuzzed_token(bytes)
}

/// Decodes bytes as the reply of Redis to every script.
pub fn reply(bytes: &[u8]) -> String {
    fuzzed_reply(bytes) + &fuzzed_quorum_reply(bytes)
}

/// Decodes bytes as every kind of row of the embedded log.
pub fn row(bytes: &[u8]) -> String {
    fuzzed_row(bytes)
}
