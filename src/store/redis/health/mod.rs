//! Examines whether locks on the Redis servers are safe.

pub(super) mod admission;
pub(super) mod examination;
pub(super) mod probe;
