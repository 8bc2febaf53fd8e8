//! What somebody saw of a lock that others hold.

use super::line::Seen;

/// What somebody saw of a lock, at some instant between two.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(super) asked: u64,
    pub(super) heard: u64,
    pub(super) holders: Vec<Seen>,
    /// Whether the one who looked asked for nothing but this: then no holder means that it is free.
    pub(super) complete: bool,
    pub(super) waiters: Vec<String>,
}
