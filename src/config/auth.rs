//! Who may use the gateway.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Invalid;

/// Who may use the gateway.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// The file with the API keys, a TOML file of `[[key]]` tables: `latchgate key new` prints one.
    /// Empty for none: everybody may do everything. Read again on a HUP signal and when it has
    /// changed.
    pub keys_file: String,
    /// How many requests with a key that is not known, and releases without a key whose token holds
    /// nothing, one address may send in a minute, 1 to 1000000. More are answered with 429. Requests
    /// with a valid key are not counted, nor are releases of leases that this gateway granted.
    pub max_refused_per_minute: u64,
}

// === impl AuthConfig ===

impl AuthConfig {
    /// Finds out whether callers can be told apart with these values.
    pub fn validate(&self) -> Result<(), Invalid> {
        let refused = self.max_refused_per_minute;
        Invalid::unless_in("auth.max_refused_per_minute", refused, 1..=1_000_000)
    }

    /// Whether there are API keys.
    pub fn has_keys(&self) -> bool {
        !self.keys_file.is_empty()
    }
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            keys_file: String::new(),
            // A person who tries, or a job that goes on with an old key, stays below; a flood of
            // log lines does not.
            max_refused_per_minute: 60,
        }
    }
}
