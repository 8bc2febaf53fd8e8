//! The embedded store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The embedded store.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EmbeddedConfig {
    /// How much memory the database may use for its page cache, in bytes.
    pub cache_bytes: usize,
}

// === impl EmbeddedConfig ===

impl Default for EmbeddedConfig {
    fn default() -> Self {
        // State is served from memory of its own; the cache only saves reads while writing.
        Self {
            cache_bytes: 4 * 1024 * 1024,
        }
    }
}
