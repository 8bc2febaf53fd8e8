//! Keeps the keys of a gate as its file has them.

use std::{os::unix::fs::MetadataExt, sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};
use tracing::{error, info, warn};

use crate::{audit::Audit, clock::Clock, file_stamp::FileStamp, lifecycle::Lifecycle};

use super::{Gate, KeyRing, KeysFile, KeysFileError};

/// Reads the file again when it has changed, and when it is told to.
#[derive(Debug)]
pub struct KeysWatch {
    file: KeysFile,
    /// The file that was read last, whether or not it could be used.
    read: FileStamp,
    /// A change that may still go on.
    changing: Option<FileStamp>,
    /// Who is told of what was read.
    audit: Audit,
}

/// How often the file is looked at. What has changed is read when it has not changed again by the
/// next look: half of a file is not read.
const PERIOD: Duration = Duration::from_secs(1);

// === impl KeysWatch ===

impl KeysWatch {
    /// Reads a file for the first time.
    pub fn open(file: KeysFile) -> Result<(Self, KeyRing), KeysFileError> {
        // Before it is read: a change in between is seen.
        let read = FileStamp::of(file.path());
        let ring = read_file(&file)?;
        let watch = Self {
            file,
            read,
            changing: None,
            audit: Audit::none(),
        };
        Ok((watch, ring))
    }

    /// The same, with an audit log that is told of every reload.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self { audit, ..self }
    }

    /// Keeps the keys of a gate up to date until the gateway stops. `asked` wakes it at once.
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
                // Only the end of the runtime, or a bug, gets here: the keys stay as they are.
                error!("the keys file is no longer looked at");
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
                    error!(%error, "the keys file cannot be used; the API keys that were read before go on");
                    self.audit.keys_reloaded(Err(&error.to_string()));
                    gate.mark_outdated();
                }
            }
        }
    }

    /// The keys, if the file has changed or somebody asked for it.
    fn look(&mut self, is_asked: bool) -> Option<Result<KeyRing, KeysFileError>> {
        let now = FileStamp::of(self.file.path());
        let is_settled = self.changing.replace(now) == Some(now);
        if !is_asked && (now == self.read || !is_settled) {
            return None;
        }
        self.read = now;
        Some(read_file(&self.file))
    }
}

/// Reads a file, and says so if it is open to everybody's changes.
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
