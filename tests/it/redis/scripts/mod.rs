//! The scripts on one server: leases, keys and late copies of commands.

pub(crate) mod bounds;
mod breaks;
mod fences;
mod foreign;
mod hold_limits;
mod recipients;
mod keys;
mod late;
pub(crate) mod list;
mod rests;
mod sharing;
mod tombstones;
