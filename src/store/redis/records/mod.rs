//! Stored records: texts that scripts write or receive. A file for each record has its layout, and the functions that
//! read and write it.

mod id;
mod lease;
mod order;
mod packed;
mod ticket;

pub(super) use id::{FLOOR, ID, NEWEST, OWNER, id, token_in};
pub(super) use lease::{LEASE, MAX_LEASE_BYTES, Record, SHARED};
pub(super) use order::{HIGHEST, granted_order, order_digits};
pub(super) use packed::{PACKED, lasts, pack};
pub(super) use ticket::{PLACE, QUEUED, TICKET, place, waiter};
