//! What is to be written to the file.

use std::ops::Range;

use crate::lock::LockName;

use super::{
    lease::Lease,
    lease_row,
    moment::Moment,
    row_key::{RowKey, Tombstone},
};

/// Rows to write and to remove, in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct Rows {
    bytes: Vec<u8>,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    key: Range<usize>,
    /// `None` removes the row.
    value: Option<Range<usize>>,
}

// === impl Rows ===

impl Rows {
    /// Writes or removes the row of a lease.
    pub(super) fn lease(&mut self, name: &LockName, lease: Option<&Lease>) {
        let key = self.append(|bytes| bytes.extend_from_slice(RowKey::lease(name).as_bytes()));
        let value = lease.map(|lease| self.append(|bytes| lease_row::encode(lease, bytes)));
        self.rows.push(Row { key, value });
    }

    /// Writes or removes the row of a tombstone.
    pub(super) fn tombstone(&mut self, tombstone: &Tombstone, until: Option<Moment>) {
        let key = self.append(|bytes| bytes.extend_from_slice(tombstone.as_bytes()));
        let value = until.map(|until| {
            self.append(|bytes| bytes.extend_from_slice(&until.as_micros().to_le_bytes()))
        });
        self.rows.push(Row { key, value });
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Key and value of each row; no value: to be removed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.rows.iter().map(|row| {
            let value = row.value.clone().map(|value| &self.bytes[value]);
            (&self.bytes[row.key.clone()], value)
        })
    }

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Range<usize> {
        let start = self.bytes.len();
        write(&mut self.bytes);
        start..self.bytes.len()
    }
}
