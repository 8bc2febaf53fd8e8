//! By what a server knows the gateway, and the gateway the server.

use std::{
    fs::File,
    io::{self, Read},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use bb8_redis::redis::{ProtocolVersion, RedisConnectionInfo};
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio_rustls::TlsConnector;
use tracing::warn;

use crate::{
    config::{RedisConfig, RedisUrl},
    stamp::Stamp,
    tls::{ClientFiles, PemFile, TlsError},
};

/// By what a server knows the gateway, and the gateway the server: as the files say now.
pub(super) struct Credentials {
    login: RedisConnectionInfo,
    password_file: Option<PathBuf>,
    tls: Option<Tls>,
    /// What was read last.
    read: Mutex<Option<(Vec<Stamp>, Shown)>>,
}

struct Tls {
    files: ClientFiles,
    host: String,
}

/// What a connection is made with.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) login: RedisConnectionInfo,
    pub(super) tls: Option<(TlsConnector, ServerName<'static>)>,
}

/// Why there is nothing to connect with. Shows nothing of what is in a file.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The password cannot be read.
    #[error("redis.password_file cannot be used: {} {reason}", path.display())]
    Password {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: PasswordError,
    },
    /// TLS cannot be spoken.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// No certificate can be for the host.
    #[error("the host of the store's URL is no name that a certificate could have: {0}")]
    Host(InvalidDnsNameError),
}

/// What is wrong with a file that should hold a password.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// It cannot be read, or is not UTF-8.
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    /// There is nothing in it.
    #[error("is empty")]
    Empty,
    /// It is some other file.
    #[error("is longer than {MAX_PASSWORD} bytes, and so no password")]
    TooLong,
}

/// No password is longer; a longer file is another file.
const MAX_PASSWORD: u64 = 4_096;

/// Finds out whether there is everything to connect with. It reads files.
pub fn check_credentials(url: &RedisUrl, config: &RedisConfig) -> Result<(), CredentialsError> {
    Credentials::new(url, config).current().map(drop)
}

// === impl Credentials ===

impl Credentials {
    /// Reads no file yet.
    pub(super) fn new(url: &RedisUrl, config: &RedisConfig) -> Self {
        let mut login = RedisConnectionInfo::default()
            .set_db(url.database().into())
            // Every reply of ours is an array of texts and integers.
            .set_protocol(ProtocolVersion::RESP2)
            // It would cost a round trip, and a permission.
            .set_skip_set_lib_name();
        let configured = Some(config.username.clone()).filter(|user| !user.is_empty());
        if let Some(user) = url.username().or(configured) {
            login = login.set_username(user);
        }
        if let Some(password) = url.password() {
            login = login.set_password(password);
        }
        let password_file =
            (!config.password_file.is_empty()).then(|| config.password_file.clone());
        let tls = || Tls {
            files: config.tls.files(),
            host: url.host().to_owned(),
        };
        Self {
            login,
            password_file: password_file.map(PathBuf::from),
            tls: url.is_tls().then(tls),
            read: Mutex::default(),
        }
    }

    /// Whether the server is reached over TLS.
    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the server is reached over TLS and sees no certificate of ours.
    pub(super) fn shows_no_certificate(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|tls| tls.files.identity.is_none())
    }

    /// What to connect with now. Files that have changed and cannot be used leave in place what was
    /// read before. It may read files: not on a thread that serves callers.
    pub(super) fn current(&self) -> Result<Shown, CredentialsError> {
        let mut last = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Before they are read: a change in between is seen.
        let stamps = self.stamps();
        if let Some((then, shown)) = &*last
            && *then == stamps
        {
            return Ok(shown.clone());
        }
        match (self.read_files(), &*last) {
            (Ok(shown), _) => {
                *last = Some((stamps, shown.clone()));
                Ok(shown)
            }
            (Err(error), Some((_, before))) => {
                warn!(%error, "what was read before goes on");
                Ok(before.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn stamps(&self) -> Vec<Stamp> {
        let of_tls = self.tls.iter().flat_map(|tls| tls.files.all());
        let password = self.password_file.iter().map(PathBuf::as_path);
        let all = password.chain(of_tls.map(PemFile::path));
        all.map(Stamp::of).collect()
    }

    fn read_files(&self) -> Result<Shown, CredentialsError> {
        let mut login = self.login.clone();
        if let Some(path) = &self.password_file {
            let password = read_password(path).map_err(|reason| CredentialsError::Password {
                path: path.clone(),
                reason,
            })?;
            login = login.set_password(password);
        }
        let tls = match &self.tls {
            None => None,
            Some(tls) => {
                let name = ServerName::try_from(tls.host.clone());
                let name = name.map_err(CredentialsError::Host)?;
                Some((TlsConnector::from(Arc::new(tls.files.config()?)), name))
            }
        };
        Ok(Shown { login, tls })
    }
}

/// All of a file but the line break at its end.
fn read_password(path: &PathBuf) -> Result<String, PasswordError> {
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_PASSWORD + 1).read_to_string(&mut text))
        .map_err(PasswordError::Unreadable)?;
    if text.len() as u64 > MAX_PASSWORD {
        return Err(PasswordError::TooLong);
    }
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    if text.is_empty() {
        return Err(PasswordError::Empty);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::StoreUrl;

    fn credentials(url: &str, config: &RedisConfig) -> Credentials {
        let Ok(StoreUrl::Redis(url)) = url.parse() else {
            panic!("{url} is a Redis URL");
        };
        Credentials::new(&url, config)
    }

    fn password(credentials: &Credentials) -> String {
        let shown = credentials.current().unwrap();
        shown.login.password().unwrap_or_default().to_owned()
    }

    #[test]
    fn a_password_file_is_read_again_when_it_has_changed_and_kept_when_it_is_broken() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "one\n").unwrap();
        let config = RedisConfig {
            username: "al".to_owned(),
            password_file: path.display().to_string(),
            ..RedisConfig::default()
        };
        let credentials = credentials("redis://h", &config);
        assert_eq!(password(&credentials), "one");
        let shown = credentials.current().unwrap();
        assert_eq!(shown.login.username(), Some("al"));
        std::fs::write(&path, "another\r\n").unwrap();
        assert_eq!(password(&credentials), "another");
        std::fs::write(&path, "").unwrap();
        assert_eq!(password(&credentials), "another");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(password(&credentials), "another");
    }

    #[test]
    fn a_password_file_that_was_never_usable_is_named_and_not_shown() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        let config = RedisConfig {
            password_file: path.display().to_string(),
            ..RedisConfig::default()
        };
        let credentials = credentials("redis://h", &config);
        let long = "s3cret".repeat(1_000);
        for (text, reason) in [
            (None, "cannot be read"),
            (Some("\n"), "is empty"),
            (Some(long.as_str()), "is longer than 4096 bytes"),
        ] {
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let said = credentials.current().err().unwrap().to_string();
            assert!(said.starts_with("redis.password_file "), "{said}");
            assert!(said.contains(reason) && !said.contains("s3cret"), "{said}");
        }
    }
}
