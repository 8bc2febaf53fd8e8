//! Watches the keys file, and keeps the keys of a gate up to date.

use std::{os::unix::fs::MetadataExt, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tracing::{error, info, warn};

use crate::{audit::Audit, clock::Clock, file_stamp::FileStamp, lifecycle::Lifecycle};

use super::{Gate, KeyRing, KeysFile, KeysFileError};

/// Reads the keys file again when the file has changed, or on request.
#[derive(Debug)]
pub struct KeysWatch {
    file: KeysFile,
    /// The stamp of the keys file when it was last read, whether or not the file could be used.
    read: FileStamp,
    /// The stamp of the keys file at the last check, if the file had changed by then. The file is read when two
    /// checks find the same stamp, because a writer may not be done at the first.
    changing: Option<FileStamp>,
    /// The audit log, which records every reload.
    audit: Audit,
}

/// How often the keys file is checked. A changed file is read when the next check finds no further change, so that
/// half of a file is not read.
const PERIOD: Duration = Duration::from_secs(1);

// === impl KeysWatch ===

impl KeysWatch {
    /// Reads a keys file for the first time.
    pub fn open(file: KeysFile) -> Result<(Self, KeyRing), KeysFileError> {
        // The stamp is taken before the file is read, so that a change in between is noticed.
        let read = FileStamp::read(file.path());
        let ring = read_file(&file)?;
        let watch = Self {
            file,
            read,
            changing: None,
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
        mut self,
        gate: Gate,
        clock: Arc<dyn Clock>,
        asked: Arc<Notify>,
        lifecycle: Lifecycle,
    ) {
        let mut looks = interval(PERIOD);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = std::pin::pin!(lifecycle.stopped());
        let mut looked_at = clock.wall();
        loop {
            let is_asked = tokio::select! {
                () = &mut stopped => return,
                () = asked.notified() => true,
                _ = looks.tick() => false,
            };
            looked_at = gate.announce_expired(looked_at);
            let work = spawn_blocking(move || {
                let outcome = self.look(is_asked);
                (self, outcome)
            });
            let Ok((watch, outcome)) = work.await else {
                // Reading the file fails like this only if the runtime ends, or by a bug: the gate keeps its keys.
                error!("the keys file is no longer watched");
                return gate.mark_outdated();
            };
            self = watch;
            match outcome {
                None => {}
                Some(Ok(ring)) => {
                    info!(keys = ring.keys().len(), file = %self.file.path().display(), "the API keys were read again");
                    self.audit.keys_reloaded(Ok(&gate.changes_from(&ring)));
                    gate.replace(ring);
                }
                Some(Err(error)) => {
                    error!(%error, "the keys file cannot be used; the API keys that were read \
                                    before stay valid");
                    self.audit.keys_reloaded(Err(&error.to_string()));
                    gate.mark_outdated();
                }
            }
        }
    }

    /// Checks the keys file. Returns its keys if the file has changed, or if a reload was requested.
    fn look(&mut self, is_asked: bool) -> Option<Result<KeyRing, KeysFileError>> {
        let now = FileStamp::read(self.file.path());
        let is_settled = self.changing.replace(now) == Some(now);
        if !is_asked && (now == self.read || !is_settled) {
            return None;
        }
        self.read = now;
        Some(read_file(&self.file))
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
