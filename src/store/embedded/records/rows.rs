//! A transaction: the rows that it writes and removes, and its data about the whole store.

use crate::{
    clock::BootId,
    lock::{FencingToken, LockName},
    store::embedded::state::{Lease, Memory, Moment},
};

use super::{
    fields::{Fields, REMOVED, RowError, put_text},
    keys::{RowKey, Tombstone},
    lease::encode,
    order,
};

/// Rows to write and to remove, encoded as in a record of the log: length of the key, length of the value, key,
/// value.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    bytes: Vec<u8>,
    count: u64,
}

// === impl Rows ===

impl Rows {
    /// Writes or removes the row of a lease; `shared` is its fencing token if it shares the lock.
    pub(crate) fn lease(
        &mut self,
        name: &LockName,
        shared: Option<FencingToken>,
        lease: Option<&Lease>,
    ) {
        let key = RowKey::lease(name, shared);
        match lease {
            Some(lease) => self.put(key.as_bytes(), |row| encode(lease, row)),
            None => self.remove(key.as_bytes()),
        }
    }

    /// Writes or removes the row of a tombstone.
    pub(crate) fn tombstone(&mut self, tombstone: &Tombstone, memory: Option<&Memory>) {
        let key = tombstone.as_bytes();
        match memory {
            Some(memory) => self.put(key, |row| {
                order::write(memory, &mut |bytes| row.extend_from_slice(bytes));
            }),
            None => self.remove(key),
        }
    }

    /// Whether the transaction writes and removes no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many rows the transaction writes or removes.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// The encoded rows of the transaction.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn put(&mut self, key: &[u8], encode: impl FnOnce(&mut Vec<u8>)) {
        let value_len = self.begin(key, 0);
        let start = self.bytes.len();
        encode(&mut self.bytes);
        let len = u32::try_from(self.bytes.len() - start).expect("a row is short");
        self.bytes[value_len..value_len + 4].copy_from_slice(&len.to_le_bytes());
    }

    fn remove(&mut self, key: &[u8]) {
        self.begin(key, REMOVED);
    }

    /// Writes the header and the key of a row. Returns the offset of the length of its value.
    fn begin(&mut self, key: &[u8], value_len: u32) -> usize {
        let len = u16::try_from(key.len()).expect("a key is short");
        self.count += 1;
        self.bytes.extend_from_slice(&len.to_le_bytes());
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&value_len.to_le_bytes());
        self.bytes.extend_from_slice(key);
        at
    }
}

/// The data about the whole store that a transaction carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The highest fencing token that the store ever granted.
    pub(crate) fence: u64,
    /// The boot of the machine from which every stored moment counts.
    pub(crate) boot: BootId,
    /// When the transaction was written to the log.
    pub(crate) written_at: Moment,
    /// How many rows the store has after the transaction.
    pub(crate) rows: u64,
}

// === impl Meta ===

impl Meta {
    /// Appends the encoded data about the store to a record of the log.
    pub(crate) fn encode(&self, record: &mut Vec<u8>) {
        record.extend_from_slice(&self.fence.to_le_bytes());
        record.extend_from_slice(&self.written_at.as_micros().to_le_bytes());
        record.extend_from_slice(&self.rows.to_le_bytes());
        put_text(
            &mut |bytes| record.extend_from_slice(bytes),
            self.boot.as_str(),
        );
    }

    /// Decodes the data about the store from a record of the log.
    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Self, RowError> {
        Ok(Self {
            fence: fields.u64()?,
            written_at: Moment::from_micros(fields.i64()?),
            rows: fields.u64()?,
            boot: BootId::new(fields.text("boot id")?),
        })
    }
}
