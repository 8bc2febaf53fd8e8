//! Durations in the configuration.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A whole number of milliseconds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Millis(pub u64);

// === impl Millis ===

impl Millis {
    /// The milliseconds as a `Duration`.
    pub fn duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}
