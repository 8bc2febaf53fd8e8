//! Shared locks: which leases may share a lock, and that every clause holds for each of them.

pub(super) mod breaks;
pub(super) mod checks;
pub(super) mod ends;
pub(super) mod grants;
pub(super) mod keys;
pub(super) mod leases;
pub(super) mod queue;
pub(super) mod rests;
pub(super) mod sequences;
pub(super) mod shown;
pub(super) mod slots;
