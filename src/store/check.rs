//! What a store finds out about whether it can keep its promises.

/// One finding of [`Store::check`](super::Store::check).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, as a stable name in lower case: `connection`, `permissions`, ..
    pub name: &'static str,
    /// What was found.
    pub health: Health,
    /// What else there is to know, where all is as it should be.
    pub note: Option<String>,
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Passing,
    /// Locks are safe, but somebody should look.
    Warning(String),
    /// The store does not answer. A gateway stays in service through this: every other gateway on
    /// the store would see the same.
    Outage(String),
    /// The store is not configured so that it can keep its promises.
    Misconfigured(String),
}
