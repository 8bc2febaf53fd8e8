//! The type of durations in the configuration, in milliseconds.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A duration in the configuration, as a whole number of milliseconds.
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
