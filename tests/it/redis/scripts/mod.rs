//! What the scripts do with leases, keys and copies of commands, on one server.

pub(crate) mod bounds;
mod breaks;
mod fences;
mod foreign;
mod hold_limits;
mod keepers;
mod keys;
mod late;
pub(crate) mod list;
mod sharing;
mod tombstones;
