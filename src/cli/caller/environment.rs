//! Input of a command other than flags: environment variables, and secrets from a file, a variable or standard
//! input. A secret is never an argument, because every process of the machine can see arguments.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io::{self, IsTerminal, Read},
    path::Path,
};

use super::super::{error::CliError, terminal::output};

/// All environment variables, valid UTF-8 or not. Without `Debug`, because some are secrets.
pub(crate) struct Environment(Vec<(OsString, OsString)>);

/// The maximum length of a secret in bytes. A longer text is refused: the user has probably named the wrong file.
const MAX_LEN: u64 = 4096;

/// A kind of secret, such as the API key, with the flag and the environment variables from which it is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SecretKind {
    /// The name of the secret, for messages.
    pub(crate) name: &'static str,
    /// The flag that names a file with the secret.
    pub(crate) flag: &'static str,
    /// The environment variable that contains the secret. With `_FILE` appended: the variable that names a file with
    /// the secret.
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

/// The variable with the ID token of this job, which the client exchanges for a key. It is not for the command of `run`.
pub(crate) const ID_TOKEN: &str = "LATCHGATE_ID_TOKEN";
/// The variable that names a file with the ID token.
pub(crate) const ID_TOKEN_FILE: &str = "LATCHGATE_ID_TOKEN_FILE";

/// The idempotency key of an acquire.
pub(crate) const IDEMPOTENCY_KEY: SecretKind = SecretKind {
    name: "idempotency key",
    flag: "--idempotency-key-file",
    variable: "LATCHGATE_IDEMPOTENCY_KEY",
};

/// The text of a secret and its source. Without `Debug`, so that no log shows it.
pub(crate) struct Secret {
    pub(crate) text: String,
    source: String,
}

// === impl Environment ===

impl Environment {
    /// The environment of this process.
    pub(crate) fn of_process() -> Self {
        Self(env::vars_os().collect())
    }

    pub(crate) fn all(&self) -> &[(OsString, OsString)] {
        &self.0
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_os_str())
    }

    /// The value of an environment variable that names an address or a file, if it is set. An empty value is an error:
    /// a script in which a command failed often leaves a variable empty.
    pub(crate) fn given(&self, name: &'static str) -> Result<Option<&str>, CliError> {
        let refuse = |error| CliError::usage(format!("{name} {error}"));
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.to_str() {
            Some("") => Err(refuse("is set and empty; give it a value, or unset it")),
            Some(text) => Ok(Some(text)),
            None => Err(refuse("is not UTF-8")),
        }
    }

    /// The text of an environment variable. An empty variable, or one that is not UTF-8, counts as missing.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.to_str().filter(|text| !text.is_empty())
    }
}

// === impl SecretKind ===

impl SecretKind {
    /// Finds the secret, and parses its text with `parse`.
    pub(crate) fn read<T, E: fmt::Display>(
        self,
        file: Option<&Path>,
        environment: &Environment,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, CliError> {
        let Some(secret) = self.find(file, environment)? else {
            return Ok(None);
        };
        let value = parse(&secret.text);
        let from = secret.source;
        value
            .map(Some)
            .map_err(|error| CliError::usage(format!("what {from} holds {error}")))
    }

    /// Finds the text of the secret. The flag has precedence over the variable with the secret, and that variable over
    /// the variable that names a file.
    fn find(
        self,
        file: Option<&Path>,
        environment: &Environment,
    ) -> Result<Option<Secret>, CliError> {
        if let Some(path) = file {
            return self.in_file(path).map(Some);
        }
        if let Some(value) = environment.get(self.variable) {
            return Ok(Some(Secret {
                text: value.to_string_lossy().into_owned(),
                source: self.variable.to_owned(),
            }));
        }
        let variable = format!("{}_FILE", self.variable);
        match environment.get(&variable) {
            Some(path) if path.is_empty() => Err(CliError::usage(format!(
                "{variable} is set and empty; give it a value, or unset it"
            ))),
            Some(path) => self.in_file(Path::new(path)).map(Some),
            None => Ok(None),
        }
    }

    fn in_file(self, path: &Path) -> Result<Secret, CliError> {
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
            Err(error) => {
                let text = format!("cannot read the {} from {source}: {error}", self.name);
                Err(CliError::usage(text))
            }
        }
    }

    /// The error if a command needs the secret and finds none.
    pub(crate) fn missing(self) -> CliError {
        let Self {
            name,
            variable,
            flag,
        } = self;
        CliError::usage(format!(
            "no {name}: set {variable}, or name a file with {flag} (- reads standard input)"
        ))
    }
}

/// Reads a secret to its end, and removes the line break at its end.
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
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_variable_that_says_nothing_is_not_the_same_as_none() {
        let given = |value: &[u8]| {
            let value = OsString::from_vec(value.to_vec());
            let environment = Environment(vec![("LATCHGATE_URL".into(), value)]);
            let given = environment.given("LATCHGATE_URL");
            given
                .map(|text| text.map(str::to_owned))
                .map_err(|error| error.to_string())
        };
        assert_eq!(given(b"http://a"), Ok(Some("http://a".to_owned())));
        let refused = given(b"").unwrap_err();
        assert!(refused.starts_with("LATCHGATE_URL is set and empty"));
        assert_eq!(given(b"\xff").unwrap_err(), "LATCHGATE_URL is not UTF-8");
        assert!(matches!(
            Environment(Vec::new()).given("LATCHGATE_URL"),
            Ok(None)
        ));
    }

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
