//! Snapshots: logs that begin with all rows, while they are being made: the next log file, or a backup.
//!
//! The rows are copied a part at a time, between the transactions of the store, and each transaction is added
//! when it is durable. So no answer waits for longer than one part takes, and the complete snapshot holds
//! everything that lives then.

use crate::store::{
    StoreError,
    embedded::{
        command::ReplySender,
        records::{Meta, Rows},
        state::{CopyCursor, State},
    },
};

use super::{
    layout::{ALIGNMENT, BLOCK, LogError, ParsedLog, append_record, header, mark_backup, new_salt},
    replay::Contents,
};

/// How many bytes of rows are copied into a snapshot at once, if nothing is written meanwhile: about two thousand rows,
/// which take less than a millisecond.
const PART: usize = 256 * 1024;

/// A log that begins with all rows, while it is being made.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The bytes of the snapshot's file that follow the bytes already taken out for writing.
    pub(crate) bytes: Vec<u8>,
    pub(crate) salt: u32,
    /// How many bytes of rows are copied into the snapshot at once.
    part: usize,
    /// The row up to which rows are copied; `None` when all rows are copied.
    copied: Option<CopyCursor>,
    /// How many bytes of rows were added since the last part. The next part is longer by as many bytes, so that
    /// the copy ends even if rows change all the time.
    added: usize,
}

// === impl Snapshot ===

impl Snapshot {
    pub(crate) fn begin(part: usize) -> Self {
        let salt = new_salt();
        Self {
            bytes: header(salt),
            salt,
            part,
            copied: Some(CopyCursor::START),
            added: 0,
        }
    }

    /// A snapshot with all rows, copied at once.
    pub(crate) fn whole(state: &State, meta: &Meta) -> Self {
        let mut snapshot = Self::begin(PART);
        while snapshot.copy_part(state, meta) {}
        snapshot
    }

    /// Adds the changes of a transaction to the snapshot.
    pub(crate) fn add(&mut self, meta: &Meta, rows: &Rows) {
        self.added += rows.as_bytes().len();
        append_record(&mut self.bytes, self.salt, meta, rows);
    }

    /// Copies the next part of the durable rows into the snapshot. Returns whether more rows are left.
    pub(crate) fn copy_part(&mut self, state: &State, meta: &Meta) -> bool {
        if let Some(copied) = self.copied.take() {
            let mut rows = Rows::default();
            self.copied = state.copy(copied, self.part + self.added, &mut rows);
            self.added = 0;
            append_record(&mut self.bytes, self.salt, meta, &rows);
        }
        self.copied.is_some()
    }

    /// The bytes of the snapshot's file, and the offset at which its last record ends. Zeros follow the last record and
    /// show a reader that no record follows.
    pub(crate) fn finish(mut self) -> (Vec<u8>, u64) {
        let end = self.bytes.len();
        // The snapshot's file is no longer than necessary: on a full disk, the log becomes shorter by beginning a new
        // file.
        self.bytes
            .resize((end + ALIGNMENT).next_multiple_of(BLOCK), 0);
        (self.bytes, end as u64)
    }

    /// The bytes of the snapshot's file, marked as a backup.
    pub(crate) fn finish_backup(self) -> Vec<u8> {
        let salt = self.salt;
        let (mut bytes, end) = self.finish();
        mark_backup(&mut bytes, salt, end);
        bytes
    }
}

// === Backup ===

/// A backup that is being made.
#[derive(Debug)]
pub(crate) struct Backup {
    pub(crate) snapshot: Snapshot,
    answer: ReplySender<Vec<u8>>,
}

/// The reason why a file is not a usable backup.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The backup file cannot be read, or part of it is missing.
    #[error("the backup is damaged or not whole: {0}")]
    Damaged(String),
    /// The file is a log file of a store: it has no mark of a backup.
    #[error("this is no backup, but a file of a log that is in use")]
    NoBackup,
}

// === impl Backup ===

impl Backup {
    pub(crate) fn begin(answer: ReplySender<Vec<u8>>) -> Self {
        let snapshot = Snapshot::begin(PART);
        Self { snapshot, answer }
    }

    /// Copies the next part of the durable rows into the backup. After the last part, answers the backup to its caller
    /// and returns `None`.
    pub(crate) fn go_on(mut self, state: &State, meta: &Meta) -> Option<Self> {
        if self.snapshot.copy_part(state, meta) {
            return Some(self);
        }
        // If the caller has gone, the backup is dropped.
        self.answer.send(Ok(self.snapshot.finish_backup())).ok();
        None
    }

    /// Answers the caller that the backup failed.
    pub(crate) fn refuse(self, error: StoreError) {
        self.answer.send(Err(error)).ok();
    }
}

/// Checks that these bytes are a whole backup. Returns how many leases it holds.
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
