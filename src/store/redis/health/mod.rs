//! Examines whether locks on the servers are safe.

pub(super) mod admission;
pub(super) mod examination;
pub(super) mod probe;
