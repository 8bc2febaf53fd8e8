//! ID tokens of OpenID Connect, and the key of the gateway for which the client exchanges them.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{StatusCode, header::HeaderValue};
use serde_json::Value;
use tokio::time::Instant;

use crate::bounded_file::{FileError, read_text};

/// An ID token of a CI system, of Kubernetes or of any issuer that the gateway knows. The client exchanges the token for
/// a key of the gateway, so that the program needs no API key. `Debug` does not show the token.
#[derive(Clone, PartialEq, Eq)]
pub struct IdToken {
    source: Source,
    /// The name of the gateway's key that the program asks for.
    pub(crate) key_name: Option<Box<str>>,
}

#[derive(Clone, PartialEq, Eq)]
enum Source {
    Text(Box<str>),
    File(PathBuf),
}

/// Why an ID token cannot be read. The error shows no part of the token.
#[derive(Debug, thiserror::Error)]
pub enum IdTokenError {
    /// The file cannot be read.
    #[error("cannot read the ID token from {path}: {error}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// Why it cannot be read.
        error: FileError,
    },
    /// The token is empty.
    #[error("the ID token is empty")]
    Empty,
}

/// The ID token of a client, and the key that the client has for it.
pub(crate) struct Exchanger {
    pub(crate) token: IdToken,
    state: Mutex<State>,
    /// Held during an exchange, so that there is one at a time.
    pub(crate) exchanging: tokio::sync::Mutex<()>,
}

/// What the gateway has answered to exchanges. Without `Debug`, because both fields have secrets.
#[derive(Default)]
struct State {
    key: Option<Arc<ExchangedKey>>,
    refused: Option<Refused>,
}

/// A key for which the client has exchanged an ID token.
pub(crate) struct ExchangedKey {
    /// The value of the header `Authorization`, which is marked as secret.
    pub(crate) header: HeaderValue,
    /// From when on the client exchanges again.
    pub(crate) due: Instant,
}

/// An ID token that the gateway has refused.
struct Refused {
    token: Box<str>,
    /// Until when the token is not sent again.
    until: Instant,
    status: StatusCode,
    body: String,
}

/// The environment variable with an ID token.
const VARIABLE: &str = "LATCHGATE_ID_TOKEN";
/// The environment variable that names a file with an ID token.
const FILE_VARIABLE: &str = "LATCHGATE_ID_TOKEN_FILE";
/// The longest ID token, in bytes, that a gateway reads.
const MAX_LEN: u64 = 16 * 1024;
/// For how long a token that the gateway has refused is not sent again: refusals count for the address of the program.
const REFUSED_FOR: Duration = Duration::from_mins(1);
/// What a program is told whose token was given as a text and has expired.
const NOT_RENEWED: &str = " Nothing renews a token that is given as a text (LATCHGATE_ID_TOKEN). A file \
                           (LATCHGATE_ID_TOKEN_FILE) is read again for each exchange.";

// === impl IdToken ===

impl IdToken {
    /// An ID token that is not replaced. The client exchanges the token when it sends its first request, and has no other
    /// token when the key has ended.
    pub fn new(text: &str) -> Self {
        Self::of(Source::Text(text.trim().into()))
    }

    /// An ID token in a file, which is read again for each exchange. Kubernetes and others replace the file.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::of(Source::File(path.into()))
    }

    /// The ID token in `LATCHGATE_ID_TOKEN`, or in the file that `LATCHGATE_ID_TOKEN_FILE` names. `None` if neither is
    /// set.
    #[expect(
        clippy::disallowed_methods,
        reason = "the program asks for its environment"
    )]
    pub fn from_environment() -> Option<Self> {
        if let Some(text) = std::env::var_os(VARIABLE) {
            return Some(Self::new(&text.to_string_lossy()));
        }
        std::env::var_os(FILE_VARIABLE).map(Self::file)
    }

    /// Asks for the key with this name, if the claims of the token match several keys of the gateway. Without a name, the
    /// first in the gateway's file counts.
    #[must_use]
    pub fn key_name(mut self, name: &str) -> Self {
        self.key_name = Some(name.into());
        self
    }

    /// Checks that there is a token. What the token is worth, only the gateway can say.
    pub fn check(&self) -> Result<(), IdTokenError> {
        self.read().map(drop)
    }

    fn of(source: Source) -> Self {
        Self {
            source,
            key_name: None,
        }
    }

    pub(crate) fn read(&self) -> Result<Box<str>, IdTokenError> {
        let text = match &self.source {
            Source::Text(text) => text.clone(),
            Source::File(path) => read_file(path)?,
        };
        if text.is_empty() {
            return Err(IdTokenError::Empty);
        }
        Ok(text)
    }
}

fn read_file(path: &Path) -> Result<Box<str>, IdTokenError> {
    let text = read_text(path, MAX_LEN).map_err(|error| IdTokenError::File {
        path: path.to_owned(),
        error,
    })?;
    Ok(text.trim().into())
}

impl fmt::Debug for IdToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Source::Text(_) => f.write_str("IdToken(..)"),
            Source::File(path) => write!(f, "IdToken({})", path.display()),
        }
    }
}

// === impl Exchanger ===

impl fmt::Debug for Exchanger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exchanger({:?})", self.token)
    }
}

impl Exchanger {
    pub(crate) fn new(token: IdToken) -> Self {
        Self {
            token,
            state: Mutex::default(),
            exchanging: tokio::sync::Mutex::default(),
        }
    }

    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn key(&self) -> Option<Arc<ExchangedKey>> {
        self.with_state(|state| state.key.clone())
    }

    /// The status and the document of the answer to an exchange of this token, if the gateway has refused the token a moment
    /// ago.
    pub(crate) fn refusal(&self, token: &str) -> Option<(StatusCode, String)> {
        self.with_state(|state| {
            let refused = state.refused.as_ref();
            let is_valid = |it: &&Refused| *it.token == *token && it.until > Instant::now();
            let refused = refused.filter(is_valid)?;
            Some((refused.status, refused.body.clone()))
        })
    }

    /// Keeps the gateway's refusal of this token, and returns its document for the caller. The document says what can be
    /// done about an expired token that nothing renews.
    pub(crate) fn refuse(&self, token: Box<str>, status: StatusCode, mut body: String) -> String {
        if let Source::Text(_) = self.token.source
            && let Ok(mut problem) = serde_json::from_str::<Value>(&body)
            && let Some(detail) = problem["detail"].as_str()
            && detail.contains("(time)")
        {
            problem["detail"] = format!("{detail}{NOT_RENEWED}").into();
            body = problem.to_string();
        }
        let refused = Refused {
            token,
            until: Instant::now() + REFUSED_FOR,
            status,
            body: body.clone(),
        };
        self.with_state(|state| state.refused = Some(refused));
        body
    }

    /// Keeps a key, which is due for the next exchange at that time.
    pub(crate) fn accept(&self, header: HeaderValue, due: Instant) -> Arc<ExchangedKey> {
        let key = Arc::new(ExchangedKey { header, due });
        let accepted = State {
            key: Some(Arc::clone(&key)),
            refused: None,
        };
        self.with_state(|state| *state = accepted);
        key
    }
}
