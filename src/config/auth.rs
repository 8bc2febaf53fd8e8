//! Who may use the gateway, and what is kept of who did what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Millis};

/// Who may use the gateway.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// The file with the API keys, a TOML file of `[[key]]` tables: `latchgate key new` prints one.
    /// Empty for none: everybody may do everything. Read again on a HUP signal and when it has
    /// changed.
    pub keys_file: String,
    /// How many requests with a key that is not known, and releases without a key whose token holds
    /// nothing, one address may send in a minute. More are answered with 429. Requests with a valid key
    /// are not counted, nor are releases of leases that this gateway granted.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_refused_per_minute: u64,
    /// For how long somebody who has shown a key to the dashboard need not show it again. A session
    /// that was begun before a change ends when it was to end then.
    #[schemars(range(min = 60_000, max = 2_592_000_000_u64))]
    pub session_ttl_ms: Millis,
    /// A file with a secret of at least 32 characters, such as `openssl rand -hex 32` prints. Gateways
    /// that are given the same one know each other's sessions, which they must if a load balancer
    /// stands before them. Read at the start; another secret ends all sessions. Empty for a random one,
    /// which is gone with the process.
    pub session_secret_file: String,
}

// === impl AuthConfig ===

impl AuthConfig {
    /// Finds out whether callers can be told apart with these values.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let secret = self.session_secret_file.as_str();
        let keys = self.keys_file.as_str();
        Invalid::unless_with(
            ("auth.session_secret_file", secret),
            ("auth.keys_file", keys),
        )
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
            // A working day: who signs in in the morning is not asked again before the evening.
            session_ttl_ms: Millis(12 * 60 * 60 * 1_000),
            session_secret_file: String::new(),
        }
    }
}

// === Audit ===

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
