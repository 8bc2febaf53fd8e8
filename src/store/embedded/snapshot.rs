//! A log that begins with everything that lives, while it is made: the next log file, or a backup.
//!
//! The rows are copied a part at a time, between the transactions of others, and each transaction is added when it is
//! durable. So no answer waits for longer than one part takes, and the snapshot holds what lives when it is complete.

use super::{
    layout::{ALIGNMENT, BLOCK, append_record, header, mark_backup, new_salt},
    row::{Meta, Rows},
    state::{CopyCursor, State},
};

/// How many bytes of rows are copied at once, if nothing is written meanwhile: about two thousand rows, which take less
/// than a millisecond.
pub(super) const PART: usize = 256 * 1024;

/// A log that begins with everything that lives, while it is made.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// The bytes of the file, from the last one on that was taken out.
    pub(super) bytes: Vec<u8>,
    pub(super) salt: u32,
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
    pub(super) fn begin(part: usize) -> Self {
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
    pub(super) fn whole(state: &State, meta: &Meta) -> Self {
        let mut snapshot = Self::begin(PART);
        while snapshot.copy_part(state, meta) {}
        snapshot
    }

    /// Adds the changes of a transaction.
    pub(super) fn add(&mut self, meta: &Meta, rows: &Rows) {
        self.added += rows.as_bytes().len();
        append_record(&mut self.bytes, self.salt, meta, rows);
    }

    /// Copies the next part of what is durable. Answers whether more is left.
    pub(super) fn copy_part(&mut self, state: &State, meta: &Meta) -> bool {
        if let Some(copied) = &self.copied {
            let mut rows = Rows::default();
            self.copied = state.copy(copied, self.part + self.added, &mut rows);
            self.added = 0;
            append_record(&mut self.bytes, self.salt, meta, &rows);
        }
        self.copied.is_some()
    }

    /// The whole file, and where its last record ends. Behind the last record are zeros, which show a reader that
    /// nothing follows.
    pub(super) fn finish(mut self) -> (Vec<u8>, u64) {
        let end = self.bytes.len();
        // Not longer: on a full disk, a new file is how the log becomes shorter.
        self.bytes
            .resize((end + ALIGNMENT).next_multiple_of(BLOCK), 0);
        (self.bytes, end as u64)
    }

    /// The whole file as a backup.
    pub(super) fn finish_backup(self) -> Vec<u8> {
        let salt = self.salt;
        let (mut bytes, end) = self.finish();
        mark_backup(&mut bytes, salt, end);
        bytes
    }
}
