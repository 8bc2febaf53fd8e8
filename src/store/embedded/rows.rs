//! What is to be written to the file.

use std::ops::Range;

use crate::lock::{FencingToken, LockName};

use super::{
    lease::Lease,
    lease_row,
    meta::Meta,
    moment::Moment,
    row_key::{RowKey, Tombstone},
    seal::seal,
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
    /// Writes the row of a lease.
    pub(super) fn lease(&mut self, name: &LockName, lease: &Lease) {
        let key = RowKey::lease(name, lease.fence);
        self.put(key.as_bytes(), |row| lease_row::encode(lease, row));
    }

    /// Removes the row of a lease.
    pub(super) fn no_lease(&mut self, name: &LockName, fence: FencingToken) {
        self.remove(RowKey::lease(name, fence).as_bytes());
    }

    /// Writes or removes the row of a tombstone.
    pub(super) fn tombstone(&mut self, tombstone: &Tombstone, until: Option<Moment>) {
        let key = tombstone.as_bytes();
        match until {
            Some(until) => self.put(key, |row| {
                row.extend_from_slice(&until.as_micros().to_le_bytes());
            }),
            None => self.remove(key),
        }
    }

    /// Writes the row about the file itself.
    pub(super) fn meta(&mut self, meta: &Meta) {
        self.put(RowKey::META, |row| meta.encode(row));
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

    fn put(&mut self, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        let range = self.append(key);
        let start = self.bytes.len();
        encode(&mut self.bytes);
        seal(key, &mut self.bytes, start);
        self.rows.push(Row {
            key: range,
            value: Some(start..self.bytes.len()),
        });
    }

    fn remove(&mut self, key: &[u8]) {
        let key = self.append(key);
        self.rows.push(Row { key, value: None });
    }

    fn append(&mut self, key: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        start..self.bytes.len()
    }
}
