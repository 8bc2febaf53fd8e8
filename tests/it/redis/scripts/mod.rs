//! The scripts on one server: leases, keys and late copies of commands.

pub(crate) mod bounds;
mod breaks;
mod fences;
mod foreign;
mod hold_limits;
mod keys;
mod late;
pub(crate) mod list;
mod orders;
mod recipients;
mod rests;
mod sharing;
mod tombstones;
