//! Stored records: the texts that the scripts write or are sent, a file for each, with its layout, and with what Rust
//! reads of it and writes.

mod id;
mod lease;
mod packed;
mod ticket;

pub(super) use id::{FLOOR, ID, OWNER, id, token_in};
pub(super) use lease::{LEASE, MAX_LEASE_BYTES, Record, SHARED};
pub(super) use packed::{PACKED, pack};
pub(super) use ticket::{PLACE, QUEUED, TICKET, place, waiter};
