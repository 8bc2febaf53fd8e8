//! What is kept of who did what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is kept of who did what.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// The file to which the audit log is appended: one JSON object per line for every lock that was
    /// broken, every refused permission, every reload of the API keys, whoever signs in to the
    /// dashboard or out, every start and stop. `-` is the standard output; empty for none. A new file can be read by its owner only. Opened again
    /// on a HUP signal, for those who rotate it.
    pub path: String,
}

// === impl AuditConfig ===

impl AuditConfig {
    /// Whether there is an audit log.
    pub fn is_kept(&self) -> bool {
        !self.path.is_empty()
    }
}
