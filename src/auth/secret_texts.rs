//! Recognizes secrets in texts that callers send in the wrong place, so that no log shows them.

use super::{ApiKey, ExchangedKey, IdToken, SealedSession};

/// Whether a text may contain an API key, an exchanged key, a session or an ID token, whole or damaged.
pub fn may_hold_secret(text: &str) -> bool {
    [ApiKey::PREFIX, ExchangedKey::PREFIX, SealedSession::PREFIX]
        .iter()
        .any(|prefix| text.contains(prefix))
        || IdToken::is_in(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_is_recognized_wherever_it_stands() {
        for secret in [
            "lgk_a",
            "x:lgs_A",
            "req-lgx_A",
            "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJ4In0.x",
            "a:eyJh.eyJp",
            "eyAiYWxnIjoiUlMyNTYifQ.ewogImlzcyI6ICJ4In0.x",
        ] {
            assert!(may_hold_secret(secret), "{secret}");
        }
        for text in ["", "deploy:web", "lgk", "eyJ", "acme/web.eyJ"] {
            assert!(!may_hold_secret(text), "{text}");
        }
    }
}
