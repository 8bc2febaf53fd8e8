//! Sessions of browsers: the id of the secret that was sent, sealed with an end time. Also the secrets that seal them.
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
    fs::{DirBuilder, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use crate::{
    bounded_file::{self, FileError},
    config::{AuthConfig, StoreUrl},
};

use super::{ApiKey, ApiKeyId, api_key::random, oidc::PURPOSE as EXCHANGED, seal::Seal};

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
// Seals sessions and exchanged keys, so that no client can make, change or read one.

/// Seals and opens sessions and exchanged keys, including those of another gateway that has the same secret. Neither
/// opens in the place of the other.
#[derive(Debug)]
pub struct SessionSeal {
    sessions: Seal,
    pub(super) exchanged: Seal,
}

/// The purpose and format of a sealed session, bound into the seal.
const SESSION: &[u8] = b"latchgate session v1";

// === impl SessionSeal ===

impl SessionSeal {
    /// A seal with a random key, which no other gateway has and which is lost with the process.
    pub fn random() -> Self {
        Self::from_secrets(&[random::<32>().to_vec()])
    }

    /// The seal of all gateways that have these secrets: the first seals, and all of them open.
    pub(super) fn from_secrets(secrets: &[Vec<u8>]) -> Self {
        Self {
            sessions: Seal::new(SESSION, secrets),
            exchanged: Seal::new(EXCHANGED, secrets),
        }
    }

    pub(super) fn seal(&self, session: &Session) -> SealedSession {
        let mut content = session.secret.as_str().as_bytes().to_vec();
        content.extend_from_slice(&milliseconds(session.until).to_be_bytes());
        let content = self.sessions.seal(content);
        SealedSession(format!("{}{content}", SealedSession::PREFIX).into())
    }

    /// Opens a session that was sealed with one of the secrets, whether or not it has expired.
    pub(super) fn open(&self, sealed: &str) -> Option<Session> {
        let content = self
            .sessions
            .open(sealed.strip_prefix(SealedSession::PREFIX)?)?;
        let (id, until) = content.split_first_chunk::<{ ApiKeyId::LEN }>()?;
        let until = Duration::from_millis(u64::from_be_bytes(until.try_into().ok()?));
        Some(Session {
            secret: ApiKeyId::parse(std::str::from_utf8(id).ok()?)?,
            until: SystemTime::UNIX_EPOCH.checked_add(until)?,
        })
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
#[error("the session secret cannot be used: {} {reason}", path.display())]
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
/// How many secrets a file may have: the one that seals, and the one that it replaces.
const MAX_SECRETS: usize = 2;

// === impl SessionSeal ===

impl SessionSeal {
    /// The configured seal: shared with other gateways by a file, or random for this process alone. With an embedded
    /// store, exchanged keys then have a secret in the data directory, because a restart must not cost a job its leases.
    pub fn open_configured(
        config: &AuthConfig,
        store: &StoreUrl,
    ) -> Result<Self, SessionSecretError> {
        if !config.session_secret_file.is_empty() {
            return Self::read(Path::new(&config.session_secret_file));
        }
        let mut seal = Self::random();
        if let StoreUrl::Embedded(directory) = store {
            let path = directory.join(EXCHANGE_SECRET);
            let secret = own_secret(&path).map_err(|reason| SessionSecretError { path, reason })?;
            seal.exchanged = Seal::new(EXCHANGED, &[secret]);
        }
        Ok(seal)
    }

    /// Checks the session secret file, if there is one. Makes no file.
    pub fn check_configured(config: &AuthConfig) -> Result<(), SessionSecretError> {
        match config.session_secret_file.as_str() {
            "" => Ok(()),
            path => Self::read(Path::new(path)).map(drop),
        }
    }

    /// The seal with the secrets of a file.
    pub(super) fn read(path: &Path) -> Result<Self, SessionSecretError> {
        let secrets = read(path).map_err(|reason| SessionSecretError {
            path: path.to_owned(),
            reason,
        })?;
        Ok(Self::from_secrets(&secrets))
    }
}

/// The file with the secret of exchanged keys, in the data directory of an embedded store. It is in no backup.
const EXCHANGE_SECRET: &str = "exchange-secret";

/// Reads the secret of this data directory, or makes one that only its user can read.
fn own_secret(path: &Path) -> Result<Vec<u8>, String> {
    if let Some(directory) = path.parent() {
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory);
        made.map_err(|error| format!("cannot be created: {error}"))?;
    }
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
    {
        Ok(mut file) => {
            let secret = ApiKey::random();
            let written = file
                .write_all(secret.expose().as_bytes())
                .and_then(|()| file.sync_all());
            written.map_err(|error| {
                // Half of a secret would be read at the next start.
                drop(std::fs::remove_file(path));
                format!("cannot be written: {error}")
            })?;
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(format!("cannot be created: {error}")),
    }
    read(path).map(|mut secrets| secrets.swap_remove(0))
}

/// Reads session secrets from a file, without the white space at their ends, which an editor or `kubectl` may have added.
/// A file of text has a secret, or two of them on two lines. Any other file is one secret.
fn read(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let bytes = bounded_file::read(path, MAX_SECRET_BYTES).map_err(|error| match error {
        FileError::TooLong(_) => {
            format!("is longer than {MAX_SECRET_BYTES} bytes, so it is the wrong file")
        }
        error => format!("cannot be read: {error}"),
    })?;
    let whole = bytes.trim_ascii();
    let is_text = whole
        .iter()
        .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
    let secrets: Vec<_> = if is_text {
        whole
            .split(|byte| *byte == b'\n')
            .map(|line| line.trim_ascii().to_vec())
            .collect()
    } else {
        vec![whole.to_vec()]
    };
    if secrets.len() > MAX_SECRETS {
        return Err(
            "has more than two lines: a secret, or a new one and the old one below it".to_owned(),
        );
    }
    if secrets.iter().any(|secret| secret.len() < MIN_SECRET_BYTES) {
        return Err(format!(
            "has a secret of fewer than {MIN_SECRET_BYTES} bytes, which an attacker could guess; make one with: \
             openssl rand -hex 32"
        ));
    }
    Ok(secrets)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    fn session() -> Session {
        Session {
            secret: ApiKeyId::parse("abcdefghij").unwrap(),
            until: SystemTime::UNIX_EPOCH + Duration::from_millis(1_795_176_000_123),
        }
    }

    #[test]
    fn comes_back_from_its_own_text_wherever_the_secret_is_the_same() {
        let sealed = SessionSeal::from_secrets(&[b"one".to_vec()]).seal(&session());
        assert_eq!(
            SessionSeal::from_secrets(&[b"one".to_vec()]).open(sealed.expose()),
            Some(session())
        );
        assert_eq!(
            SessionSeal::from_secrets(&[b"two".to_vec()]).open(sealed.expose()),
            None
        );
        assert_eq!(SessionSeal::random().open(sealed.expose()), None);
    }

    #[test]
    fn is_another_text_each_time_and_tells_nothing() {
        let seal = SessionSeal::random();
        let [one, two] = [seal.seal(&session()), seal.seal(&session())];
        assert_ne!(one.expose(), two.expose());
        let bytes = &one.expose()[SealedSession::PREFIX.len()..];
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
            .decode(bytes)
            .unwrap();
        assert!(
            !bytes
                .windows(4)
                .any(|part| b"abcdefghij".windows(4).any(|of| of == part))
        );
        assert_eq!(
            format!("{one:?} {seal:?}"),
            "SealedSession(..) SessionSeal { sessions: Seal(..), exchanged: Seal(..) }"
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
            [secret.as_bytes()]
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
        let store = "redis://localhost".parse().unwrap();
        let error = SessionSeal::open_configured(&config, &store)
            .unwrap_err()
            .to_string();
        assert!(
            error
                .starts_with("the session secret cannot be used: /nowhere/secret cannot be read: "),
            "{error}"
        );
        assert!(SessionSeal::open_configured(&AuthConfig::default(), &store).is_ok());
    }
}
