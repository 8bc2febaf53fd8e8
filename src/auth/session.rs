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
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::{
    bounded_file::{self, FileError},
    config::AuthConfig,
};

use super::{
    ApiKey, ApiKeyId,
    api_key::random,
    oidc::{ExchangedContent, PURPOSE as EXCHANGED},
    seal::Seal,
};

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

/// Seals and opens sessions, exchanged keys and attempts to sign in, including those of another gateway that has the same
/// secret. None of them opens in the place of another.
#[derive(Debug, Clone)]
pub struct SessionSeal {
    sessions: Arc<Seal>,
    /// Sessions of people that have signed in at an issuer.
    people: Arc<Seal>,
    /// Attempts of people to sign in at an issuer.
    pub(super) attempts: Arc<Seal>,
    pub(super) exchanged: Arc<Seal>,
}

/// The purpose and format of a sealed session, bound into the seal.
const SESSION: &[u8] = b"latchgate session v1";
/// The purpose and format of the sealed session of a person.
const PERSON: &[u8] = b"latchgate session of a person v1";
/// The purpose and format of a sealed attempt to sign in.
const ATTEMPT: &[u8] = b"latchgate attempt to sign in v1";

// === impl SessionSeal ===

impl SessionSeal {
    /// A seal with a random key, which no other gateway has and which is lost with the process.
    pub fn random() -> Self {
        Self::from_secrets(&[random::<32>().to_vec()])
    }

    /// The seal of all gateways that have these secrets: the first seals, and all of them open.
    pub(super) fn from_secrets(secrets: &[Vec<u8>]) -> Self {
        Self {
            sessions: Arc::new(Seal::new(SESSION, secrets)),
            people: Arc::new(Seal::new(PERSON, secrets)),
            attempts: Arc::new(Seal::new(ATTEMPT, secrets)),
            exchanged: Arc::new(Seal::new(EXCHANGED, secrets)),
        }
    }

    pub(super) fn seal(&self, session: &Session) -> SealedSession {
        let mut content = session.secret.as_str().as_bytes().to_vec();
        content.extend_from_slice(&milliseconds(session.until).to_be_bytes());
        let content = self.sessions.seal(content);
        SealedSession(format!("{}{content}", SealedSession::PREFIX).into())
    }

    /// Seals the session of a person; `None` if it is too long for a cookie.
    pub(super) fn seal_person(&self, person: &ExchangedContent) -> Option<SealedSession> {
        let sealed = person.seal(SealedSession::PREFIX, &self.people)?;
        Some(SealedSession(sealed.into()))
    }

    /// Opens the session of a person, whether or not it has ended.
    pub(super) fn open_person(&self, sealed: &str) -> Option<ExchangedContent> {
        ExchangedContent::open(SealedSession::PREFIX, sealed, &self.people)
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

/// A time in milliseconds since 1970.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
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
    /// The configured seal: shared with other gateways by a file, or random for this process alone.
    pub fn open_configured(config: &AuthConfig) -> Result<Self, SessionSecretError> {
        match config.session_secret_file.as_str() {
            "" => Ok(Self::random()),
            path => Self::read(Path::new(path)),
        }
    }

    /// This seal of sessions, and for exchanged keys that of a data directory, because a restart must not cost a job its
    /// leases.
    pub(super) fn of_directory(&self, directory: &Path) -> Result<Self, SessionSecretError> {
        let path = directory.join(EXCHANGE_SECRET);
        let secret = own_secret(&path).map_err(|reason| SessionSecretError { path, reason })?;
        Ok(Self {
            exchanged: Arc::new(Seal::new(EXCHANGED, &[secret])),
            ..self.clone()
        })
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

/// Reads the secret of this data directory, or makes one that only its user can read. Half of a file is never there.
fn own_secret(path: &Path) -> Result<Vec<u8>, String> {
    let make = || -> io::Result<()> {
        let directory = path.parent().unwrap_or(Path::new("."));
        let mut draft = tempfile::Builder::new();
        let mut new = draft.prefix(".exchange-secret.").tempfile_in(directory)?;
        new.write_all(ApiKey::random().expose().as_bytes())?;
        new.as_file().sync_all()?;
        new.persist(path)?;
        File::open(directory)?.sync_all()
    };
    if !path.exists() {
        make().map_err(|error| format!("cannot be made: {error}"))?;
    }
    read(path).map(|mut secrets| secrets.swap_remove(0))
}

/// Reads session secrets from a file, without the white space at their ends, which an editor or `kubectl` may have added.
/// A file of text has a secret, or two of them with an empty line between. Any other file is one secret.
fn read(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let bytes = bounded_file::read(path, MAX_SECRET_BYTES).map_err(|error| match error {
        FileError::TooLong(_) => {
            format!("is longer than {MAX_SECRET_BYTES} bytes, so it is the wrong file")
        }
        error => format!("cannot be read: {error}"),
    })?;
    let whole = bytes.trim_ascii();
    let secrets: Vec<_> = match std::str::from_utf8(whole) {
        Ok(text) if text.is_ascii() => {
            let lines: Vec<_> = text.split_inclusive('\n').collect();
            let secrets = lines.split(|line| line.trim_ascii().is_empty());
            let secrets = secrets.map(|lines| lines.concat().trim_ascii().as_bytes().to_vec());
            secrets.filter(|secret| !secret.is_empty()).collect()
        }
        _ => vec![whole.to_vec()],
    };
    if secrets.len() > MAX_SECRETS {
        return Err("has more than two secrets, with empty lines between".to_owned());
    }
    if secrets.is_empty() || secrets.iter().any(|secret| secret.len() < MIN_SECRET_BYTES) {
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
            "SealedSession(..) SessionSeal { sessions: Seal(..), people: Seal(..), attempts: Seal(..), exchanged: Seal(..) }"
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
        // A secret of several lines, as `openssl rand -base64 64` prints, is one secret.
        let lines = format!("{secret}\n{secret}");
        assert_eq!(
            read_back(&format!("{lines}\n")).unwrap(),
            [lines.as_bytes()]
        );
        assert_eq!(
            read_back(&format!("{secret}\n\n{lines}\n")).unwrap(),
            [secret.as_bytes(), lines.as_bytes()]
        );
        for (text, reason) in [
            (
                &*format!("{secret}\n\n{secret}\n\n{secret}"),
                "more than two",
            ),
            (&*format!("{secret}\n\nx"), "fewer than 32"),
            (&*format!("{secret}\r\n \t\r\nx"), "fewer than 32"),
            ("", "fewer than 32"),
            (&format!("{}\n\n", &secret[1..]), "openssl rand"),
            (&"s".repeat(4_097), "longer than 4096"),
        ] {
            let refused = read_back(text).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn a_data_directory_keeps_its_secret_and_no_half_of_one() {
        let directory = tempfile::tempdir().unwrap();
        let random = SessionSeal::random();
        let one = random.of_directory(directory.path()).unwrap();
        let other = SessionSeal::random()
            .of_directory(directory.path())
            .unwrap();
        let sealed = one.exchanged.seal(b"x".to_vec());
        assert_eq!(other.exchanged.open(&sealed), Some(b"x".to_vec()));
        let sealed = random.seal(&session());
        assert_eq!(one.open(sealed.expose()), Some(session()));
        assert_eq!(other.open(sealed.expose()), None);
        let files = std::fs::read_dir(directory.path()).unwrap();
        assert_eq!(files.count(), 1);
        assert!(random.of_directory(Path::new("/nowhere")).is_err());
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
            error
                .starts_with("the session secret cannot be used: /nowhere/secret cannot be read: "),
            "{error}"
        );
        assert!(SessionSeal::open_configured(&AuthConfig::default()).is_ok());
    }
}
