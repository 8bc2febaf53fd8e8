//! Watches the keys file and the session secret file, and keeps the keys and secrets of a gate up to date.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::{
    audit::Audit, clock::Clock, config::AuthConfig, file_stamp::FileWatch, lifecycle::Lifecycle,
};

use super::{Gate, KeyRing, KeysFile, KeysFileError, SessionSeal};

/// Reads the keys file again when the file has changed, or on request.
#[derive(Debug)]
pub struct KeysWatch {
    file: KeysFile,
    watch: FileWatch<1>,
    /// The audit log, which records every reload.
    audit: Audit,
}

// === impl KeysWatch ===

impl KeysWatch {
    /// Reads a keys file for the first time.
    pub fn open(file: KeysFile) -> Result<(Self, KeyRing), KeysFileError> {
        let watch = FileWatch::new([file.path()]);
        let ring = read_file(&file)?;
        let watch = Self {
            file,
            watch,
            audit: Audit::none(),
        };
        Ok((watch, ring))
    }

    /// Adds an audit log, which records every reload.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self { audit, ..self }
    }

    /// Keeps the keys of a gate up to date until the gateway stops. A notification of `asked` makes the watch read
    /// the file at once.
    pub async fn keep_current(
        self,
        gate: Gate,
        clock: Arc<dyn Clock>,
        asked: Arc<Notify>,
        lifecycle: Lifecycle,
    ) {
        let Self { file, watch, audit } = self;
        let path = file.path().to_owned();
        let mut looked_at = clock.wall();
        let report = |outcome: Option<Result<KeyRing, String>>| {
            looked_at = gate.announce_expired(looked_at);
            match outcome {
                None => {}
                Some(Ok(ring)) => {
                    info!(keys = ring.keys().len(), file = %path.display(), "the API keys were read again");
                    audit.keys_reloaded(Ok(&gate.changes_from(&ring)));
                    gate.replace(ring);
                }
                Some(Err(error)) => {
                    error!(%error, "the keys file cannot be used; the API keys that were read before stay valid");
                    audit.keys_reloaded(Err(&error));
                    gate.mark_outdated();
                }
            }
        };
        let read = move || read_file(&file);
        watch.keep_current(read, asked, lifecycle, report).await;
    }
}

/// Reads the keys file, and logs a warning if every user of the machine can write the file.
fn read_file(file: &KeysFile) -> Result<KeyRing, KeysFileError> {
    const OTHERS_WRITE: u32 = 0o002;
    let ring = file.read()?;
    if std::fs::metadata(file.path()).is_ok_and(|data| data.mode() & OTHERS_WRITE != 0) {
        warn!(
            file = %file.path().display(),
            "every user of this machine can write the keys file, and make a key that may do everything"
        );
    }
    Ok(ring)
}

// === Secret watch ===
//
// Reads the session secrets again, so that a secret can be replaced without a restart.

/// Reads the session secret file again when it has changed, or on request.
#[derive(Debug)]
pub struct SecretWatch {
    path: PathBuf,
    watch: FileWatch<1>,
}

// === impl SecretWatch ===

impl SecretWatch {
    /// Watches the session secret file, if there is one. Call this before the file is read for the first time.
    pub fn new(config: &AuthConfig) -> Option<Self> {
        let path = Path::new(&config.session_secret_file);
        let watch = || FileWatch::new([path]);
        (!config.session_secret_file.is_empty()).then(|| Self {
            path: path.to_owned(),
            watch: watch(),
        })
    }

    /// Keeps the secrets of a gate up to date until the gateway stops.
    pub async fn keep_current(self, gate: Gate, asked: Arc<Notify>, lifecycle: Lifecycle) {
        let Self { path, watch } = self;
        let read = move || SessionSeal::read(&path);
        let report = |outcome| match outcome {
            None => {}
            Some(Ok(seal)) => {
                info!("the session secrets were read again");
                gate.replace_seal(seal);
            }
            Some(Err(error)) => {
                error!(%error, "the session secrets that were read before stay in use");
            }
        };
        watch.keep_current(read, asked, lifecycle, report).await;
    }
}
