//! Sessions of browsers: the id of the secret that was sent, sealed with an end time.
//!
//! No API key may be where a script of the page could read it. `POST /session` admits a caller by key and sets a
//! cookie: the id of the secret and an end, sealed with ChaCha20-Poly1305 under `auth.session_secret_file` or a
//! random key. Gateways keep no sessions, so any gateway with the same secret accepts the cookie, and only removing
//! the secret from its key ends a copied cookie early.
//!
//! Browsers attach cookies without being asked. So a session counts only for requests that the browser marks as
//! coming from pages of this gateway, and an API key in the request takes precedence. When keys change, streams and
//! waiters check again whether the session still permits them.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::Sha256;

use crate::{
    bounded_file::{self, FileError},
    config::AuthConfig,
};

use super::{ApiKeyId, api_key::random};

/// A caller that has sent an API key, and need not send it again until the session ends.
///
/// A session belongs to one secret of the key: the session ends when that secret is removed, even if the key has
/// another secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Session {
    /// The public id of the API key's secret that was sent to begin the session.
    pub(super) secret: ApiKeyId,
    /// When the session ends, in whole milliseconds.
    pub(super) until: SystemTime,
}

/// A session as its browser keeps it. While it lasts it is as good as the key, so `Debug` never shows it.
#[derive(Clone)]
pub struct SealedSession(Box<str>);

// === impl SealedSession ===

impl SealedSession {
    /// The first characters of every sealed session, by which a session is recognised as a secret in any text.
    pub(super) const PREFIX: &str = "lgs_";

    /// Whether a text may contain a session, and so must not be written down.
    pub fn is_in(text: &str) -> bool {
        text.contains(Self::PREFIX)
    }

    /// The sealed session as text, for the caller that has sent the key.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SealedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedSession(..)")
    }
}

// === Session seal ===
//
// Seals sessions, so that no client can make, change or read a session.

/// Seals and opens sessions, including those of another gateway that has the same secret.
pub struct SessionSeal(LessSafeKey);

/// The purpose and format of a sealed session, bound into the seal: a text that was sealed for another purpose does
/// not open.
const PURPOSE: &[u8] = b"latchgate session v1";
/// The length of a session before sealing: the id of the secret, and the end in milliseconds since 1970.
const CONTENT_LEN: usize = ApiKeyId::LEN + size_of::<u64>();

// === impl SessionSeal ===

impl SessionSeal {
    /// A seal with a random key, which no other gateway has and which is lost with the process.
    pub fn random() -> Self {
        Self::from_secret(&random::<32>())
    }

    /// The seal of all gateways that have this secret.
    pub(super) fn from_secret(secret: &[u8]) -> Self {
        // The sealing key is derived from the shared secret and the purpose, so that another use of the secret cannot
        // open sessions.
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
        let content = URL_SAFE_NO_PAD.encode([&nonce[..], &content].concat());
        SealedSession(format!("{}{content}", SealedSession::PREFIX).into())
    }

    /// Opens a session that was sealed with this secret, whether or not it has expired.
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

// === Session secret ===
//
// The secret that gateways share, so that each of them accepts the sessions of the others.

/// Why a file is no session secret. The error shows nothing of the file's content.
#[derive(Debug, thiserror::Error)]
#[error("auth.session_secret_file cannot be used: {} {reason}", path.display())]
pub struct SessionSecretError {
    /// The path of the session secret file that cannot be used.
    path: PathBuf,
    /// Why the session secret file cannot be used.
    reason: String,
}

/// The shortest session secret, in bytes: 128 random bits in hexadecimal digits.
const MIN_SECRET_BYTES: usize = 32;
/// The longest session secret, in bytes; a longer file must have been configured by mistake.
const MAX_SECRET_BYTES: u64 = 4_096;

// === impl SessionSeal ===

impl SessionSeal {
    /// The configured seal: shared with other gateways by a file, or random for this process alone.
    pub fn open_configured(config: &AuthConfig) -> Result<Self, SessionSecretError> {
        if config.session_secret_file.is_empty() {
            return Ok(Self::random());
        }
        let path = Path::new(&config.session_secret_file);
        let secret = read(path).map_err(|reason| SessionSecretError {
            path: path.to_owned(),
            reason,
        })?;
        Ok(Self::from_secret(&secret))
    }
}

/// Reads a session secret from a file, without the white space at its ends, which an editor or `kubectl` may have
/// added.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = bounded_file::read(path, MAX_SECRET_BYTES).map_err(|error| match error {
        FileError::TooLong(_) => {
            format!("is longer than {MAX_SECRET_BYTES} bytes, so it is the wrong file")
        }
        error => format!("cannot be read: {error}"),
    })?;
    let secret = bytes.trim_ascii();
    if secret.len() < MIN_SECRET_BYTES {
        return Err(format!(
            "has fewer than {MIN_SECRET_BYTES} bytes, which an attacker could guess; make one with: \
             openssl rand -hex 32"
        ));
    }
    Ok(secret.to_vec())
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
        let sealed = SessionSeal::from_secret(b"one").seal(&session());
        assert_eq!(
            SessionSeal::from_secret(b"one").open(sealed.expose()),
            Some(session())
        );
        assert_eq!(SessionSeal::from_secret(b"two").open(sealed.expose()), None);
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

    #[test]
    fn a_secret_is_long_and_the_line_break_behind_it_is_none_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let read_back = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path)
        };
        let secret = "s".repeat(MIN_SECRET_BYTES);
        assert_eq!(
            read_back(&format!("{secret}\n")).unwrap(),
            secret.as_bytes()
        );
        for (text, reason) in [
            ("", "fewer than 32"),
            (&format!("{}\n\n", &secret[1..]), "openssl rand"),
            (&"s".repeat(4_097), "longer than 4096"),
        ] {
            let refused = read_back(text).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn who_names_a_file_that_is_not_there_is_told_so() {
        let config = AuthConfig {
            session_secret_file: "/nowhere/secret".to_owned(),
            ..AuthConfig::default()
        };
        let error = SessionSeal::open_configured(&config)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with(
                "auth.session_secret_file cannot be used: /nowhere/secret cannot be read: "
            ),
            "{error}"
        );
        assert!(SessionSeal::open_configured(&AuthConfig::default()).is_ok());
    }
}
