//! Reads secrets from where they may be: a file, the environment, standard input. Never an argument,
//! which every process of the machine can see.

use std::{
    fmt,
    fs::File,
    io::{self, IsTerminal, Read},
    path::{Path, PathBuf},
};

use super::{super::terminal::output, environment::Environment};

/// No secret is longer; a longer file is another file.
const MAX_LEN: u64 = 4096;

/// A kind of secret and where it is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecretKind {
    /// What it is called.
    pub(crate) name: &'static str,
    /// The flag that names a file.
    pub(crate) flag: &'static str,
    /// The variable that holds it; with `_FILE` behind it, the variable that names a file.
    pub(crate) variable: &'static str,
}

/// The token of a lease.
pub(crate) const TOKEN: SecretKind = SecretKind {
    name: "token",
    flag: "--token-file",
    variable: "LATCHGATE_TOKEN",
};

/// The API key.
pub(crate) const KEY: SecretKind = SecretKind {
    name: "API key",
    flag: "--key-file",
    variable: "LATCHGATE_KEY",
};

/// The idempotency key of an acquire.
pub(crate) const IDEMPOTENCY_KEY: SecretKind = SecretKind {
    name: "idempotency key",
    flag: "--idempotency-key-file",
    variable: "LATCHGATE_IDEMPOTENCY_KEY",
};

/// A secret's text. It does not print itself.
pub(crate) struct Secret {
    pub(crate) text: String,
    source: String,
}

/// Why there is no secret. None of these repeats what was read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SecretError {
    /// It was looked for everywhere.
    #[error("no {}: set {}, or name a file with {} (- reads standard input)", .0.name, .0.variable, .0.flag)]
    Missing(SecretKind),
    /// The variable that names its file names none.
    #[error("{}_FILE is set and empty; give it a value, or unset it", .0.variable)]
    NoFileName(SecretKind),
    /// Its file cannot be read.
    #[error("cannot read the {} from {from}: {error}", kind.name)]
    Unreadable {
        /// Which secret.
        kind: SecretKind,
        /// Its file.
        from: String,
        /// Why.
        error: io::Error,
    },
    /// It is not what such a secret looks like.
    #[error("what {from} holds {error}")]
    Malformed {
        /// Where it was read.
        from: String,
        /// Why.
        error: String,
    },
}

// === impl SecretKind ===

impl SecretKind {
    /// Finds the secret and reads it with `parse`.
    pub(crate) fn read<T, E: fmt::Display>(
        self,
        file: Option<&Path>,
        environment: &Environment,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, SecretError> {
        let Some(secret) = self.find(file, environment)? else {
            return Ok(None);
        };
        match parse(&secret.text) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(SecretError::Malformed {
                error: error.to_string(),
                from: secret.source,
            }),
        }
    }

    /// The strongest source wins: the flag, the variable, the variable that names a file.
    fn find(
        self,
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Option<Secret>, SecretError> {
        if let Some(path) = file {
            return self.in_file(path).map(Some);
        }
        if let Some(value) = environment.get(self.variable) {
            return Ok(Some(Secret {
                text: value.to_string_lossy().into_owned(),
                source: self.variable.to_owned(),
            }));
        }
        match environment.get(&format!("{}_FILE", self.variable)) {
            Some(path) if path.is_empty() => Err(SecretError::NoFileName(self)),
            Some(path) => self.in_file(&PathBuf::from(path)).map(Some),
            None => Ok(None),
        }
    }

    fn in_file(self, path: &Path) -> Result<Secret, SecretError> {
        let (source, text) = if path.as_os_str() == "-" {
            if io::stdin().is_terminal() {
                output::note(&format!("reading the {} from standard input", self.name));
            }
            ("standard input".to_owned(), read_all(io::stdin()))
        } else {
            (
                path.display().to_string(),
                File::open(path).and_then(read_all),
            )
        };
        match text {
            Ok(text) => Ok(Secret { text, source }),
            Err(error) => Err(SecretError::Unreadable {
                kind: self,
                from: source,
                error,
            }),
        }
    }
}

/// All of a file but the line break at its end.
fn read_all(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_LEN + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_LEN {
        let error = format!("it is longer than {MAX_LEN} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_break_at_the_end_is_no_part_of_a_secret() {
        assert_eq!(read_all("abc\r\n".as_bytes()).unwrap(), "abc");
        assert_eq!(read_all(" abc".as_bytes()).unwrap(), " abc");
    }

    #[test]
    fn a_file_that_is_too_long_is_another_file() {
        assert!(read_all("x".repeat(4096).as_bytes()).is_ok());
        assert!(read_all("x".repeat(4097).as_bytes()).is_err());
    }
}
