//! Watches the keys file and the session secret file, and keeps the keys and secrets of a gate up to date.

use std::{convert::Infallible, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc};

use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::{
    audit::Audit, clock::Clock, config::AuthConfig, file_stamp::FileWatch, lifecycle::Lifecycle,
};

use super::{Gate, KeyRing, KeysFile, KeysFileError, SessionSeal};

/// Reads the keys file and the session secret file again when one of them has changed, or on request.
#[derive(Debug)]
pub struct KeysWatch {
    file: KeysFile,
    /// The session secret file, if there is one.
    secrets: Option<PathBuf>,
    watch: FileWatch<2>,
    /// The audit log, which records every reload.
    audit: Audit,
}

// === impl KeysWatch ===

impl KeysWatch {
    /// Reads a keys file for the first time. Call this before the session secret file is read.
    pub fn open(file: KeysFile, config: &AuthConfig) -> Result<(Self, KeyRing), KeysFileError> {
        let path = &config.session_secret_file;
        let secrets = (!path.is_empty()).then(|| PathBuf::from(path));
        let watch = FileWatch::new([file.path(), secrets.as_deref().unwrap_or(file.path())]);
        let ring = read_file(&file)?;
        let watch = Self {
            file,
            secrets,
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

    /// Keeps the keys and the secrets of a gate up to date until the gateway stops. A notification of `asked` makes the
    /// watch read the files at once. A file that cannot be used does not keep the other from being used.
    pub async fn keep_current(
        self,
        gate: Gate,
        clock: Arc<dyn Clock>,
        asked: Arc<Notify>,
        lifecycle: Lifecycle,
    ) {
        let Self {
            file,
            secrets,
            watch,
            audit,
        } = self;
        let path = file.path().to_owned();
        let mut looked_at = clock.wall();
        let failed = |file: &str, error: String| {
            error!(%error, "{file} cannot be used; what was read from it before stays valid");
            audit.keys_reloaded(Err(&error));
            gate.mark_outdated();
        };
        let report = |outcome: Option<Result<_, String>>| {
            looked_at = gate.announce_expired(looked_at);
            let (ring, seal): (Result<KeyRing, String>, _) = match outcome {
                None => return,
                Some(Ok(read)) => read,
                Some(Err(error)) => (Err(error), Ok(None)),
            };
            match ring {
                Ok(ring) => {
                    info!(keys = ring.keys().len(), file = %path.display(), "the API keys were read again");
                    audit.keys_reloaded(Ok(&gate.changes_from(&ring)));
                    gate.replace(ring);
                }
                Err(error) => failed("the keys file", error),
            }
            match seal {
                Ok(None) => {}
                Ok(Some(seal)) => gate.replace_seal(seal),
                Err(error) => failed("the session secret file", error),
            }
        };
        let read = move || {
            let ring = read_file(&file).map_err(|error| error.to_string());
            let seal = secrets.as_deref().map(SessionSeal::read).transpose();
            Ok::<_, Infallible>((ring, seal.map_err(|error| error.to_string())))
        };
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
