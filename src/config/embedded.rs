//! The embedded store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Invalid;

/// The embedded store.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedConfig {
    /// How much memory the database may use for its page cache, in
    /// bytes: 65536 to 1073741824. What is held is in memory anyway, so more is rarely faster.
    pub cache_bytes: usize,
}

// === impl EmbeddedConfig ===

impl EmbeddedConfig {
    /// Finds out whether a store can be opened with these values.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        // Below it the database writes out pages that it is about to read again; above it the
        // number is a slip of the finger.
        let bounds = 64 * 1024..=1024 * 1024 * 1024;
        let bytes = u64::try_from(self.cache_bytes).unwrap_or(u64::MAX);
        Invalid::unless_in("embedded.cache_bytes", bytes, bounds)
    }
}

impl Default for EmbeddedConfig {
    fn default() -> Self {
        // State is served from memory of its own; the cache only saves reads while writing.
        Self {
            cache_bytes: 4 * 1024 * 1024,
        }
    }
}
