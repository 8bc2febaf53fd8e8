//! Stored records: texts that scripts write or receive. A file for each record has its layout, and the functions that
//! read and write it.

mod id;
mod lease;
mod packed;
mod ticket;

pub(super) use id::{FLOOR, ID, OWNER, id, token_in};
pub(super) use lease::{LEASE, MAX_LEASE_BYTES, Record, SHARED};
pub(super) use packed::{PACKED, lasts, pack};
pub(super) use ticket::{PLACE, QUEUED, TICKET, place, waiter};
