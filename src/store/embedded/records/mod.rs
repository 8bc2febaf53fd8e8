//! Stored records: keys of rows, the row of a lease, transactions, and the fields that they are made of.

mod fields;
mod keys;
mod lease;
mod rows;

pub(super) use fields::{Fields, RowError};
pub(super) use keys::{RowKey, Tombstone};
pub(super) use lease::{decode, len_of_lease, len_of_tombstone};
pub(super) use rows::{Meta, Rows};

#[cfg(any(test, feature = "fuzzing"))]
pub(super) use lease::encode;
