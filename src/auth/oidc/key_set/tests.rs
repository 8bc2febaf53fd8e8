//! Which keys of a set can verify ID tokens, and which of them is the key of a token.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::{KeySet, KeySetError, Selection};

/// A random modulus of so many bits: no test signs with it.
fn rsa(kid: Option<&str>, bits: usize) -> Value {
    let mut modulus = vec![0x5a; bits / 8];
    modulus[0] = 0x80;
    json!({"kty": "RSA", "kid": kid, "use": "sig", "n": URL_SAFE_NO_PAD.encode(modulus), "e": "AQAB"})
}

fn p256(kid: &str) -> Value {
    let part = URL_SAFE_NO_PAD.encode([7; 32]);
    json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": part, "y": part})
}

fn with(mut key: Value, field: &str, value: Value) -> Value {
    key[field] = value;
    key
}

fn parse(keys: &[Value]) -> Result<KeySet, KeySetError> {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
}

/// A set of one key, for tests of what is done with sets.
pub(in crate::auth::oidc) fn one_key() -> String {
    json!({"keys": [p256("k")]}).to_string()
}

#[test]
fn a_key_that_cannot_verify_an_id_token_is_left_out() {
    for fits in [
        rsa(Some("k"), 2_048),
        rsa(Some("k"), 4_096),
        rsa(None, 2_048),
        p256("k"),
        with(p256("k"), "use", json!("sig")),
        with(p256("k"), "alg", json!("ES256")),
        with(rsa(None, 2_048), "alg", json!("RS256")),
        with(p256("k"), "key_ops", json!(["verify"])),
        with(p256("k"), "x5c", json!(["AAAA"])),
    ] {
        assert!(parse(std::slice::from_ref(&fits)).is_ok(), "{fits}");
    }
    for unfit in [
        rsa(Some("k"), 1_024),
        rsa(Some("k"), 2_040),
        rsa(Some("k"), 4_104),
        with(rsa(None, 2_048), "use", json!("enc")),
        with(rsa(None, 2_048), "alg", json!("RS512")),
        with(rsa(None, 2_048), "alg", json!("HS256")),
        with(rsa(None, 2_048), "n", json!("not base64!")),
        with(p256("k"), "alg", json!("RS256")),
        with(p256("k"), "crv", json!("P-384")),
        with(p256("k"), "x", json!("AA")),
        with(p256("k"), "key_ops", json!(["sign"])),
        json!({"kty": "oct", "k": "c2VjcmV0", "kid": "k"}),
        json!({"kty": "OKP", "crv": "Ed25519", "x": "AAAA", "kid": "k"}),
        json!({"kty": "new"}),
        json!("text"),
        json!(null),
    ] {
        assert_eq!(
            parse(std::slice::from_ref(&unfit)).unwrap_err(),
            KeySetError::NoKey,
            "{unfit}"
        );
        assert_eq!(
            parse(&[unfit.clone(), p256("k2")]).unwrap().0.len(),
            1,
            "{unfit}"
        );
    }
}

#[test]
fn of_two_keys_with_one_kid_neither_counts() {
    assert_eq!(
        parse(&[p256("k"), p256("k")]).unwrap_err(),
        KeySetError::NoKey
    );
    let set = parse(&[p256("k"), rsa(Some("k"), 2_048), p256("other")]).unwrap();
    assert!(matches!(
        set.select(Some("k"), Algorithm::ES256),
        Selection::UnknownKid
    ));
    assert!(matches!(
        set.select(Some("other"), Algorithm::ES256),
        Selection::Key(_)
    ));
}

#[test]
fn a_token_without_a_kid_has_a_key_only_if_exactly_one_fits() {
    let set = parse(&[p256("a"), rsa(Some("b"), 2_048), rsa(None, 2_048)]).unwrap();
    assert!(matches!(
        set.select(None, Algorithm::ES256),
        Selection::Key(_)
    ));
    assert!(matches!(
        set.select(None, Algorithm::RS256),
        Selection::Ambiguous
    ));
    let set = parse(&[p256("a")]).unwrap();
    assert!(matches!(
        set.select(None, Algorithm::RS256),
        Selection::Ambiguous
    ));
    assert!(matches!(
        set.select(Some(""), Algorithm::ES256),
        Selection::UnknownKid
    ));
}

#[test]
fn the_type_of_the_key_decides_the_algorithm() {
    let set = parse(&[p256("a")]).unwrap();
    let Selection::Key(key) = set.select(Some("a"), Algorithm::RS256) else {
        panic!("no key")
    };
    assert_eq!(key.algorithm, Algorithm::ES256);
}

#[test]
fn a_document_of_another_kind_is_refused() {
    for bad in [
        "",
        "[]",
        "{}",
        "null",
        r#"{"keys": {}}"#,
        "<html>busy</html>",
    ] {
        assert_eq!(
            KeySet::parse(bad.as_bytes()).unwrap_err(),
            KeySetError::NotASet,
            "{bad}"
        );
    }
    let keys: Vec<_> = (0..101).map(|number| p256(&number.to_string())).collect();
    assert_eq!(parse(&keys).unwrap_err(), KeySetError::TooMany(101));
    assert!(parse(&keys[..100]).is_ok());
}
