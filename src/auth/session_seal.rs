//! Seals sessions, so that nobody makes one, changes one or reads what is in it.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::Sha256;

use super::{ApiKeyId, SealedSession, session::Session};

/// Seals and opens sessions. Those of another gateway too, if both were given the same secret.
pub struct SessionSeal(LessSafeKey);

/// The form of what is sealed. Another form has another purpose, and does not open with this one.
const PURPOSE: &[u8] = b"latchgate session v1";
/// What a sealed session holds: the id of the secret, and the end in milliseconds since 1970.
const CONTENT_LEN: usize = ApiKeyId::LEN + size_of::<u64>();

// === impl SessionSeal ===

impl SessionSeal {
    /// One that nobody else has, and that is gone with the process.
    pub fn random() -> Self {
        Self::of(&random::<32>())
    }

    /// That of everybody who has this secret.
    pub(super) fn of(secret: &[u8]) -> Self {
        // Not the secret itself: what else it may once be used for must not open this.
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
        mac.update(PURPOSE);
        let key = UnboundKey::new(&CHACHA20_POLY1305, &mac.finalize().into_bytes());
        Self(LessSafeKey::new(key.expect("the hash is as long as a key")))
    }

    pub(super) fn seal(&self, session: &Session) -> SealedSession {
        let nonce = random::<NONCE_LEN>();
        let mut content = Vec::with_capacity(CONTENT_LEN + CHACHA20_POLY1305.tag_len());
        content.extend_from_slice(session.secret.as_str().as_bytes());
        content.extend_from_slice(&milliseconds(session.until).to_be_bytes());
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(PURPOSE),
                &mut content,
            )
            .expect("a few bytes are not too many to be sealed");
        SealedSession::new(&URL_SAFE_NO_PAD.encode([&nonce[..], &content].concat()))
    }

    /// The session that was sealed with this secret, over or not.
    pub(super) fn open(&self, sealed: &str) -> Option<Session> {
        let sealed = sealed.strip_prefix(SealedSession::PREFIX)?;
        let mut sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, content) = sealed.split_first_chunk_mut::<NONCE_LEN>()?;
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let content = self.0.open_in_place(nonce, Aad::from(PURPOSE), content);
        let (id, until) = content.ok()?.split_first_chunk::<{ ApiKeyId::LEN }>()?;
        let until = Duration::from_millis(u64::from_be_bytes(until.try_into().ok()?));
        Some(Session {
            secret: ApiKeyId::parse(std::str::from_utf8(id).ok()?)?,
            until: SystemTime::UNIX_EPOCH.checked_add(until)?,
        })
    }
}

impl fmt::Debug for SessionSeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionSeal(..)")
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("a running system has a source of random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session {
            secret: ApiKeyId::parse("abcdefghij").unwrap(),
            until: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_176_000_123),
        }
    }

    #[test]
    fn comes_back_from_its_own_text_wherever_the_secret_is_the_same() {
        let sealed = SessionSeal::of(b"one").seal(&session());
        assert_eq!(
            SessionSeal::of(b"one").open(sealed.expose()),
            Some(session())
        );
        assert_eq!(SessionSeal::of(b"two").open(sealed.expose()), None);
        assert_eq!(SessionSeal::random().open(sealed.expose()), None);
    }

    #[test]
    fn is_another_text_each_time_and_tells_nothing() {
        let seal = SessionSeal::random();
        let [one, two] = [seal.seal(&session()), seal.seal(&session())];
        assert_ne!(one.expose(), two.expose());
        let bytes = &one.expose()[SealedSession::PREFIX.len()..];
        let bytes = URL_SAFE_NO_PAD.decode(bytes).unwrap();
        assert!(
            !bytes
                .windows(4)
                .any(|part| b"abcdefghij".windows(4).any(|of| of == part))
        );
        assert_eq!(
            format!("{one:?} {seal:?}"),
            "SealedSession(..) SessionSeal(..)"
        );
    }

    #[test]
    fn one_that_was_changed_cut_or_made_up_does_not_open() {
        let seal = SessionSeal::random();
        let sealed = seal.seal(&session());
        let text = sealed.expose();
        for at in 0..text.len() {
            assert_eq!(seal.open(&text[..at]), None, "cut at {at}");
            let other = if text[at..].starts_with('A') {
                "B"
            } else {
                "A"
            };
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            assert_eq!(seal.open(&changed), None, "changed at {at}");
        }
        for made_up in [
            "",
            "=",
            "ä",
            &"A".repeat(64),
            &format!("{text}A"),
            &format!("{text}AAAA"),
        ] {
            assert_eq!(seal.open(made_up), None, "{made_up}");
        }
    }
}
