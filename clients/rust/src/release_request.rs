//! That the holder of a lease was asked to release it.

use std::time::Duration;

use serde::Deserialize;

/// Somebody wants the lock: what its holder has not released in time is broken then.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReleaseRequest {
    /// The name of the API key that asked, if any.
    #[serde(default)]
    pub by: Option<String>,
    /// Why, as they have said it.
    #[serde(default)]
    pub reason: String,
    /// How much time was left when the gateway answered, in milliseconds.
    pub within_ms: u64,
    /// The lock that was asked for, if several were acquired as one.
    #[serde(skip)]
    pub name: Option<String>,
}

// === impl ReleaseRequest ===

impl ReleaseRequest {
    /// How much time was left when the gateway answered.
    #[must_use]
    pub fn within(&self) -> Duration {
        Duration::from_millis(self.within_ms)
    }
}
