//! Snapshots: logs that begin with everything that lives, while they are made: the next log file, or a backup.
//!
//! The rows are copied a part at a time, between the transactions of others, and each transaction is added when it is
//! durable. So no answer waits for longer than one part takes, and the snapshot holds what lives when it is complete.

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

/// How many bytes of rows are copied at once, if nothing is written meanwhile: about two thousand rows, which take less
/// than a millisecond.
const PART: usize = 256 * 1024;

/// A log that begins with everything that lives, while it is made.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The bytes of the file, from the last one on that was taken out.
    pub(crate) bytes: Vec<u8>,
    pub(crate) salt: u32,
    /// How many bytes of rows are copied at once.
    part: usize,
    /// How far the copy has come; none if everything was copied.
    copied: Option<CopyCursor>,
    /// How many bytes of rows were added since the last part. The next part is longer by as many, so the copy ends
    /// whatever changes meanwhile.
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

    /// Copies everything at once.
    pub(crate) fn whole(state: &State, meta: &Meta) -> Self {
        let mut snapshot = Self::begin(PART);
        while snapshot.copy_part(state, meta) {}
        snapshot
    }

    /// Adds the changes of a transaction.
    pub(crate) fn add(&mut self, meta: &Meta, rows: &Rows) {
        self.added += rows.as_bytes().len();
        append_record(&mut self.bytes, self.salt, meta, rows);
    }

    /// Copies the next part of what is durable. Answers whether more is left.
    pub(crate) fn copy_part(&mut self, state: &State, meta: &Meta) -> bool {
        if let Some(copied) = self.copied.take() {
            let mut rows = Rows::default();
            self.copied = state.copy(copied, self.part + self.added, &mut rows);
            self.added = 0;
            append_record(&mut self.bytes, self.salt, meta, &rows);
        }
        self.copied.is_some()
    }

    /// The whole file, and where its last record ends. Behind the last record are zeros, which show a reader that
    /// nothing follows.
    pub(crate) fn finish(mut self) -> (Vec<u8>, u64) {
        let end = self.bytes.len();
        // Not longer: on a full disk, a new file is how the log becomes shorter.
        self.bytes
            .resize((end + ALIGNMENT).next_multiple_of(BLOCK), 0);
        (self.bytes, end as u64)
    }

    /// The whole file as a backup.
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
    pub(crate) fn begin(answer: ReplySender<Vec<u8>>) -> Self {
        let snapshot = Snapshot::begin(PART);
        Self { snapshot, answer }
    }

    /// Copies the next part of what is durable. Ends with an answer once that was all.
    pub(crate) fn go_on(mut self, state: &State, meta: &Meta) -> Option<Self> {
        if self.snapshot.copy_part(state, meta) {
            return Some(self);
        }
        // The caller may have gone.
        self.answer.send(Ok(self.snapshot.finish_backup())).ok();
        None
    }

    /// Answers that there will be none.
    pub(crate) fn refuse(self, error: StoreError) {
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
