//! A backup of the running store: a log file of its own with everything that lives.

use crate::store::StoreError;

use super::{
    command::ReplySender,
    layout::{LogError, ParsedLog},
    replay::Contents,
    row::Meta,
    snapshot::{PART, Snapshot},
    state::State,
};

/// A backup that is being made.
#[derive(Debug)]
pub(super) struct Backup {
    pub(super) snapshot: Snapshot,
    answer: ReplySender<Vec<u8>>,
}

/// A file that is no whole backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It cannot be read, or has lost something.
    #[error("the backup is damaged or not whole: {0}")]
    Damaged(String),
    /// It is a file of a log that is in use.
    #[error("this is no backup, but a file of a log that is in use")]
    NoBackup,
}

// === impl Backup ===

impl Backup {
    pub(super) fn begin(answer: ReplySender<Vec<u8>>) -> Self {
        let snapshot = Snapshot::begin(PART);
        Self { snapshot, answer }
    }

    /// Copies the next part of what is durable. Ends with an answer once that was all.
    pub(super) fn go_on(mut self, state: &State, meta: &Meta) -> Option<Self> {
        if self.snapshot.copy_part(state, meta) {
            return Some(self);
        }
        // The caller may have gone.
        self.answer.send(Ok(self.snapshot.finish_backup())).ok();
        None
    }

    /// Answers that there will be none.
    pub(super) fn refuse(self, error: StoreError) {
        self.answer.send(Err(error)).ok();
    }
}

/// Makes sure that this is a whole backup. Answers how many leases it holds.
pub fn check_backup(bytes: &[u8]) -> Result<usize, BackupError> {
    let damaged = |error: LogError| BackupError::Damaged(error.to_string());
    let log = ParsedLog::parse(bytes).map_err(damaged)?;
    if !log.is_backup {
        return Err(BackupError::NoBackup);
    }
    if !log.is_clean {
        return Err(BackupError::Damaged(
            "something is behind its end".to_owned(),
        ));
    }
    let contents = Contents::replay(&log).map_err(damaged)?;
    Ok(contents.leases.len())
}
