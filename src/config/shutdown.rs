//! How the gateway stops.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Millis};

/// How the gateway stops.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long renew, release and requests under way may go on after a TERM or INT signal, 0 to
    /// 600000. It ends sooner when nothing is left to do; a second signal ends it at once.
    pub grace_ms: Millis,
}

// === impl ShutdownConfig ===

impl ShutdownConfig {
    /// Finds out whether the gateway can stop in this way.
    pub fn validate(&self) -> Result<(), Invalid> {
        Invalid::unless_in("shutdown.grace_ms", self.grace_ms.0, 0..=600_000)
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        // Below the 30 s after which Kubernetes kills, with room for what comes before and after.
        Self {
            grace_ms: Millis(10_000),
        }
    }
}
