//! The decoders. Each answers a text about the outcome, and panics if the outcome cannot be right.

use std::{fmt::Write, time::SystemTime};

use crate::{
    auth::{ClaimRules, IdToken, KeySet, Template},
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

/// Decodes bytes as an ID token, as the keys of an issuer, and as a template for the claims of the token. No such token is
/// verified, because nobody has the private key.
pub fn token(bytes: &[u8]) -> String {
    /// A public key whose private key was never kept.
    const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "e",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
    let keys = KeySet::parse(KEYS.as_bytes()).expect("a P-256 key verifies");
    let mut outcome = format!("{:?}", KeySet::parse(bytes).map(|_| ()));
    let Ok(text) = std::str::from_utf8(bytes) else {
        return outcome;
    };
    let verify = |token: IdToken<'_>| token.verify(&keys, "i", "a", SystemTime::UNIX_EPOCH);
    outcome += &match IdToken::parse(text).and_then(verify) {
        Ok(None) => "unknown kid".to_owned(),
        Ok(Some(_)) => panic!("a forged token is verified"),
        Err(refusal) => refusal.to_string(),
    };
    let claims = serde_json::from_str(text).unwrap_or_default();
    let is_verified = ClaimRules::default().check(&claims, true).is_ok();
    write!(outcome, " verified: {is_verified}").expect("a string takes all");
    let (template, claims) = text.split_once('\n').unwrap_or((text, ""));
    let claims = serde_json::from_str(claims).unwrap_or_default();
    if let Some(Ok(prefix)) = Template::of_prefix(template).map(|it| it.render_prefix(&claims)) {
        let path = format!("/{prefix}");
        let is_changed = ["//", "/./", "/../"].iter().any(|it| path.contains(it));
        let is_separated = prefix.ends_with(['/', ':']) || !template.ends_with(['/', ':']);
        assert!(!is_changed && is_separated, "{prefix}");
        outcome += " prefix";
    }
    if let Some(Ok(shown)) = Template::of_text(template).map(|it| it.render_text(&claims)) {
        assert!(!shown.contains(char::is_control), "{shown:?}");
        outcome += " text";
    }
    outcome
}

/// Decodes bytes as the reply of Redis to every script.
pub fn reply(bytes: &[u8]) -> String {
    fuzzed_reply(bytes) + &fuzzed_quorum_reply(bytes)
}

/// Decodes bytes as every kind of row of the embedded log.
pub fn row(bytes: &[u8]) -> String {
    fuzzed_row(bytes)
}
