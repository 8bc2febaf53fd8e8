//! The Redis store against real servers.

mod bounds;
mod breaks;
mod chaos;
mod connections;
mod crowded;
mod eviction;
pub(crate) mod examination;
mod expected;
mod fences;
mod foreign;
mod hostile;
mod keepers;
mod keys;
mod late;
mod leases;
mod list;
mod refusals;
mod replica;
mod replicated;
pub(crate) mod rig;
pub(crate) mod sentinel;
mod tombstones;
mod waiting;
