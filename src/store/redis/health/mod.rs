//! Whether the servers are such that locks on them are safe.

pub(super) mod admission;
pub(super) mod examination;
pub(super) mod probe;
