//! A backup of the running store: a segment of its own with everything that lives.
//!
//! It is made as the log is when it begins a new segment: the rows are copied a part at a time, between the
//! transactions of others, and what those change meanwhile is added as it is written. So nobody waits for longer than
//! one part takes, and the backup is what lived in one instant, that of its end.

use crate::store::StoreError;

use super::{
    command::ReplySender,
    layout::{
        ALIGNMENT, BLOCK, Link, LogError, Mark, ParsedSegment, append_record, header, mark_backup,
        new_salt,
    },
    replay::Replay,
    row::{Meta, Rows},
    state::{CopyCursor, State},
};

/// How many rows are copied at once: some hundred microseconds.
const COPY: usize = 1024;
/// A backup is the first segment of the log that begins with it.
const GENERATION: u64 = 1;

/// A backup that is being made.
#[derive(Debug)]
pub(super) struct Backup {
    bytes: Vec<u8>,
    salt: u32,
    last: u64,
    copied: CopyCursor,
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
        let salt = new_salt();
        Self {
            bytes: header(salt),
            salt,
            last: 0,
            copied: CopyCursor::START,
            answer,
        }
    }

    /// Adds what a transaction changes.
    pub(super) fn add(&mut self, meta: &Meta, rows: &Rows) {
        let link = Link {
            sequence: self.last + 1,
            follows: self.last,
            base: GENERATION,
        };
        append_record(&mut self.bytes, self.salt, link, meta, rows);
        self.last = link.sequence;
    }

    /// Copies the next part of what is durable. Ends with an answer once that was all.
    pub(super) fn go_on(mut self, state: &State, meta: &Meta) -> Option<Self> {
        let mut rows = Rows::default();
        let more = state.copy(&self.copied, COPY, &mut rows);
        self.add(meta, &rows);
        if let Some(copied) = more {
            Some(Self { copied, ..self })
        } else {
            self.finish();
            None
        }
    }

    /// Answers that there will be none.
    pub(super) fn refuse(self, error: StoreError) {
        self.answer.send(Err(error)).ok();
    }

    fn finish(mut self) {
        let end = self.bytes.len();
        self.bytes
            .resize((end + ALIGNMENT).next_multiple_of(BLOCK), 0);
        mark_backup(&mut self.bytes, self.salt, self.last);
        // Whoever asked may have gone.
        self.answer.send(Ok(self.bytes)).ok();
    }
}

/// Makes sure that this is a whole backup. Answers how many leases it holds.
pub fn check_backup(bytes: &[u8]) -> Result<usize, BackupError> {
    let damaged = |error: LogError| BackupError::Damaged(error.to_string());
    let segment = ParsedSegment::parse(bytes).map_err(damaged)?;
    if segment.mark != Mark::Backup {
        return Err(BackupError::NoBackup);
    }
    if !segment.is_clean {
        return Err(BackupError::Damaged(
            "something is behind its end".to_owned(),
        ));
    }
    let mut replay = Replay::default();
    replay.add(&segment).map_err(damaged)?;
    let contents = replay.finish().map_err(damaged)?;
    Ok(contents.leases.len())
}
