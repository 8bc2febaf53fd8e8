//! The findings of a store about whether it can keep its promises.

use std::time::Duration;

/// One finding of [`Store::check`](super::Store::check) on whether the store can keep its promises.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Stable name of what was checked, in lower case: `connection`, `permissions`, ..
    pub name: &'static str,
    /// The outcome of this check.
    pub health: Health,
    /// Additional information about a check that passes.
    pub note: Option<String>,
    /// How long at least the store grants no lock because of this finding; `None` if that is unknown, or if locks are
    /// granted.
    pub refuses_for: Option<Duration>,
}

impl Check {
    /// Creates a finding without a note.
    pub fn new(name: &'static str, health: Health) -> Self {
        Self {
            name,
            health,
            note: None,
            refuses_for: None,
        }
    }
}

/// The outcome of one check of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The check has found no problem with the store.
    Passing,
    /// Locks are safe, but the operator should look into the problem in the text.
    Warning(String),
    /// The store does not answer. The gateway stays in service, because every other gateway on the store would
    /// see the same outage.
    Outage(String),
    /// The configuration of the store does not allow it to keep its promises.
    Misconfigured(String),
}
