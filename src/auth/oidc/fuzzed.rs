//! Calls the decoders of what issuers and programs send, for fuzzers.

use std::time::SystemTime;

use super::{ClaimRules, IdToken, KeySet, Template, Verification};

/// Decodes bytes as an ID token, as the keys of an issuer, and as a template for the claims of the token. No such token is
/// verified, because nobody has the private key.
pub(crate) fn fuzzed_token(bytes: &[u8]) -> String {
    /// A public key whose private key was never kept.
    const KEYS: &str = r#"{"keys": [{"kty": "EC", "crv": "P-256", "kid": "e",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
    let keys = KeySet::parse(KEYS.as_bytes()).expect("a P-256 key verifies");
    let mut outcome = format!("{:?}", KeySet::parse(bytes).map(|_| ()));
    let Ok(text) = std::str::from_utf8(bytes) else {
        return outcome;
    };
    outcome += &match IdToken::parse(text)
        .and_then(|it| it.verify(&keys, "i", "a", SystemTime::UNIX_EPOCH))
    {
        Ok(Verification::UnknownKid) => "unknown kid".to_owned(),
        Ok(Verification::Verified(_)) => panic!("a forged token is verified"),
        Err(refusal) => refusal.to_string(),
    };
    let claims = serde_json::from_str(text).unwrap_or_default();
    outcome += if ClaimRules::default().check(&claims, true).is_ok() {
        " verified"
    } else {
        " not verified"
    };
    let (template, claims) = text.split_once('\n').unwrap_or((text, ""));
    let claims = serde_json::from_str(claims).unwrap_or_default();
    if let Some(Ok(prefix)) = Template::of_prefix(template).map(|it| it.render_prefix(&claims)) {
        let path = format!("/{prefix}");
        let is_changed = ["//", "/./", "/../"].iter().any(|it| path.contains(it));
        assert!(
            !is_changed && prefix.ends_with(['/', ':']) | !template.ends_with(['/', ':']),
            "{prefix}"
        );
        outcome += " prefix";
    }
    if let Some(Ok(shown)) = Template::of_text(template).map(|it| it.render_text(&claims)) {
        assert!(!shown.contains(char::is_control), "{shown:?}");
        outcome += " text";
    }
    outcome
}
