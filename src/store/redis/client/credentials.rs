//! Credentials for Redis servers and sentinels: the login, and the TLS files.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio_rustls::TlsConnector;
use tracing::warn;

use crate::{
    bounded_file::{self, FileError},
    config::{RedisConfig, RedisLogin, RedisNode, ServersKind, StoreUrl},
    file_stamp::FileStamp,
    tls::{ClientFiles, PemFile, TlsError},
};

/// The login and the TLS files for connections to servers. The files are read again when they have changed.
pub(crate) struct Credentials {
    login: RedisLogin,
    /// The file with the password, and the configuration key that names it.
    password_file: Option<(&'static str, PathBuf)>,
    tls: Option<ClientFiles>,
    /// The credentials that were read last, with the stamps of their files.
    read: Mutex<Option<(Vec<FileStamp>, LoadedCredentials)>>,
}

/// The login and the TLS settings for a new connection.
#[derive(Clone)]
pub(crate) struct LoadedCredentials {
    pub(crate) login: RedisLogin,
    pub(crate) tls: Option<TlsConnector>,
}

/// Why the credentials cannot be used. The text shows nothing of a file's content.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The password file cannot be used.
    #[error("{key} cannot be used: {} {reason}", path.display())]
    Password {
        /// The configuration key that names the file.
        key: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Why the file cannot be used.
        reason: PasswordError,
    },
    /// The TLS files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The host is no name that a certificate could contain.
    #[error("{host} is no name that a certificate could have: {reason}")]
    Host {
        /// The host in the store's URL.
        host: String,
        /// Why the host is no valid name.
        reason: InvalidDnsNameError,
    },
}

/// Why a password file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The file cannot be read, or is not UTF-8.
    #[error("cannot be read: {0}")]
    Unreadable(FileError),
    /// The file is empty.
    #[error("is empty")]
    Empty,
    /// The file is too long for a password, so it is probably another file.
    #[error("is longer than {MAX_PASSWORD} bytes, and so no password")]
    TooLong,
}

/// Maximum size of a password file, in bytes.
const MAX_PASSWORD: u64 = 4_096;

/// The name that the certificate of a server must contain.
pub(crate) fn server_name(node: &RedisNode) -> Result<ServerName<'static>, CredentialsError> {
    let host = node.host().to_owned();
    ServerName::try_from(host.clone()).map_err(|reason| CredentialsError::Host { host, reason })
}

// === impl Credentials ===

impl Credentials {
    /// Credentials for the servers that store the locks. Reads no file yet.
    pub(crate) fn of_redis(login: &RedisLogin, config: &RedisConfig) -> Self {
        let configured = Some(config.username.clone()).filter(|user| !user.is_empty());
        let login = RedisLogin {
            username: login.username.clone().or(configured),
            ..login.clone()
        };
        let file = ("redis.password_file", config.password_file.as_str());
        Self::new(login, file, config)
    }

    /// Credentials for the sentinels, which get nothing of the login to Redis. Reads no file yet.
    pub(crate) fn of_sentinels(redis: &RedisLogin, config: &RedisConfig) -> Self {
        let user = Some(config.sentinel.username.clone()).filter(|user| !user.is_empty());
        let login = RedisLogin {
            username: user,
            password: None,
            database: 0,
            is_tls: redis.is_tls,
        };
        let path = config.sentinel.password_file.as_str();
        Self::new(login, ("redis.sentinel.password_file", path), config)
    }

    fn new(
        login: RedisLogin,
        (key, password_file): (&'static str, &str),
        config: &RedisConfig,
    ) -> Self {
        let path = (!password_file.is_empty()).then(|| PathBuf::from(password_file));
        Self {
            password_file: path.map(|path| (key, path)),
            tls: login.is_tls.then(|| config.tls.files()),
            login,
            read: Mutex::default(),
        }
    }

    /// Whether the server is reached over TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether the server is reached over TLS without a client certificate.
    pub(crate) fn shows_no_certificate(&self) -> bool {
        self.tls
            .as_ref()
            .is_some_and(|files| files.identity.is_none())
    }

    /// The credentials for a new connection. If a changed file cannot be used, the credentials that were read before
    /// stay in use. May read files, so a thread that serves requests must not call this.
    pub(crate) fn current(&self) -> Result<LoadedCredentials, CredentialsError> {
        let mut last = self.read.lock();
        // Taken before the files are read: otherwise a change in between would go unnoticed.
        let stamps = self.stamps();
        if let Some((then, loaded)) = &*last
            && *then == stamps
        {
            return Ok(loaded.clone());
        }
        match (self.read_files(), &*last) {
            (Ok(loaded), _) => {
                *last = Some((stamps, loaded.clone()));
                Ok(loaded)
            }
            (Err(error), Some((_, before))) => {
                warn!(%error, "the credentials that were read before stay in use");
                Ok(before.clone())
            }
            (Err(error), None) => Err(error),
        }
    }

    fn stamps(&self) -> Vec<FileStamp> {
        let of_tls = self.tls.iter().flat_map(ClientFiles::all);
        let password = self.password_file.iter().map(|(_, path)| path.as_path());
        let all = password.chain(of_tls.map(PemFile::path));
        all.map(FileStamp::read).collect()
    }

    fn read_files(&self) -> Result<LoadedCredentials, CredentialsError> {
        let mut login = self.login.clone();
        if let Some((key, path)) = &self.password_file {
            let password = read_password(path).map_err(|reason| CredentialsError::Password {
                key,
                path: path.clone(),
                reason,
            })?;
            login.password = Some(password);
        }
        let tls = match &self.tls {
            None => None,
            Some(files) => Some(TlsConnector::from(Arc::new(files.config()?))),
        };
        Ok(LoadedCredentials { login, tls })
    }
}

/// Checks that the credentials for the servers of a store can be used. Reads files.
pub fn check_credentials(url: &StoreUrl, config: &RedisConfig) -> Result<(), CredentialsError> {
    let Some(url) = url.servers() else {
        return Ok(());
    };
    let of_redis = Credentials::of_redis(&url.login(), config);
    of_redis.current()?;
    if url.kind() == ServersKind::Sentinels {
        Credentials::of_sentinels(&url.login(), config).current()?;
    }
    for node in url.nodes().iter().filter(|_| of_redis.is_tls()) {
        server_name(node)?;
    }
    Ok(())
}

/// Reads a password file, without the line break at its end.
fn read_password(path: &Path) -> Result<String, PasswordError> {
    let text = bounded_file::read_text(path, MAX_PASSWORD);
    let mut text = text.map_err(|error| match error {
        FileError::TooLong(_) => PasswordError::TooLong,
        error => PasswordError::Unreadable(error),
    })?;
    text.truncate(text.trim_end_matches(['\r', '\n']).len());
    if text.is_empty() {
        return Err(PasswordError::Empty);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn credentials(url: &str, config: &RedisConfig) -> Credentials {
        let url: StoreUrl = url.parse().unwrap();
        let login = url.login().expect("somebody logs in to Redis");
        Credentials::of_redis(&login, config)
    }

    /// The path of a password file that does not exist yet, and a configuration that names it.
    fn with_file() -> (TempDir, PathBuf, RedisConfig) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("password");
        let config = RedisConfig {
            password_file: path.display().to_string(),
            ..RedisConfig::default()
        };
        (directory, path, config)
    }

    fn password(credentials: &Credentials) -> String {
        let loaded = credentials.current().unwrap();
        loaded.login.password.unwrap_or_default()
    }

    #[test]
    fn a_password_file_is_read_again_when_it_has_changed_and_kept_when_it_is_broken() {
        let (_directory, path, mut config) = with_file();
        config.username = "al".to_owned();
        std::fs::write(&path, "one\n").unwrap();
        let credentials = credentials("redis://h", &config);
        assert_eq!(password(&credentials), "one");
        let loaded = credentials.current().unwrap();
        assert_eq!(loaded.login.username.as_deref(), Some("al"));
        std::fs::write(&path, "another\r\n").unwrap();
        assert_eq!(password(&credentials), "another");
        std::fs::write(&path, "").unwrap();
        assert_eq!(password(&credentials), "another");
        std::fs::remove_file(&path).unwrap();
        assert_eq!(password(&credentials), "another");
    }

    #[test]
    fn the_sentinels_are_not_told_the_password_of_redis() {
        let (_directory, path, mut config) = with_file();
        let url = "redis+sentinel://al:s3cret@h/m/3".parse::<StoreUrl>();
        let login = url.unwrap().login().unwrap();
        let password_file = std::mem::take(&mut config.password_file);
        let loaded = |config: &RedisConfig| {
            let of_sentinels = Credentials::of_sentinels(&login, config);
            of_sentinels.current().map(|loaded| loaded.login)
        };
        let nobody = loaded(&config).unwrap();
        assert_eq!((nobody.username, nobody.password), (None, None));
        assert_eq!(nobody.database, 0, "a sentinel has no databases");
        config.sentinel.password_file = password_file;
        let said = loaded(&config).err().unwrap().to_string();
        assert!(said.starts_with("redis.sentinel.password_file "), "{said}");
        std::fs::write(&path, "watch\n").unwrap();
        assert_eq!(loaded(&config).unwrap().password.as_deref(), Some("watch"));
    }

    #[test]
    fn a_password_file_that_was_never_usable_is_named_and_not_shown() {
        let (_directory, path, config) = with_file();
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
