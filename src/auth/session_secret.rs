//! The secret that gateways share, so that one lets in whom another has let sign in.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::config::AuthConfig;

use super::SessionSeal;

/// Why a file is no secret. Shows nothing of what is in it.
#[derive(Debug, thiserror::Error)]
#[error("auth.session_secret_file cannot be used: {} {reason}", path.display())]
pub struct SessionSecretError {
    /// The file.
    path: PathBuf,
    /// Why.
    reason: SecretFault,
}

#[derive(Debug, thiserror::Error)]
enum SecretFault {
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error(
        "has fewer than {LEAST} bytes, which somebody could guess; make one with: openssl rand -hex 32"
    )]
    TooShort,
    #[error("is longer than {MOST} bytes, and so another file")]
    TooLong,
}

/// As much as 128 random bits in hexadecimal digits.
const LEAST: usize = 32;
/// No secret is longer; a longer file is another file.
const MOST: usize = 4_096;

// === impl SessionSeal ===

impl SessionSeal {
    /// The seal that is configured: shared with others by a file, or of this process alone.
    pub fn open_configured(config: &AuthConfig) -> Result<Self, SessionSecretError> {
        if config.session_secret_file.is_empty() {
            return Ok(Self::random());
        }
        let path = Path::new(&config.session_secret_file);
        let secret = read(path).map_err(|reason| SessionSecretError {
            path: path.to_owned(),
            reason,
        })?;
        Ok(Self::of(&secret))
    }
}

/// All of a file but the white space at its ends: an editor, or `kubectl`, may have added some.
fn read(path: &Path) -> Result<Vec<u8>, SecretFault> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MOST + 1).expect("the length limit fits in a usize");
    File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(SecretFault::Unreadable)?;
    if bytes.len() > MOST {
        return Err(SecretFault::TooLong);
    }
    let secret = bytes.trim_ascii();
    if secret.len() < LEAST {
        return Err(SecretFault::TooShort);
    }
    Ok(secret.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_and_the_line_break_behind_it_is_none_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let read_back = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read(&path).map_err(|reason| reason.to_string())
        };
        let secret = "s".repeat(LEAST);
        assert_eq!(
            read_back(&format!("{secret}\n")).unwrap(),
            secret.as_bytes()
        );
        for (text, reason) in [
            ("", "fewer than 32"),
            (&format!("{}\n\n", &secret[1..]), "openssl rand"),
            (&"s".repeat(MOST + 1), "longer than 4096"),
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
