//! Stored records: keys of rows, the rows of leases and tombstones, transactions, and the fields that they are made of.

mod fields;
mod keys;
mod lease;
mod order;
mod rows;

pub(super) use fields::{Fields, RowError};
pub(super) use keys::{RowKey, Tombstone};
pub(super) use lease::{decode, len_of_lease};
pub(super) use order::{decode_memory, len_of_tombstone};
pub(super) use rows::{Meta, Rows};

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use lease::encode;
