//! Settings of API keys and sessions (`[auth]`), and of the audit log (`[audit]`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Millis};

/// API keys, and sessions of the dashboard.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// The TOML file with the API keys, a `[[key]]` table for each: `latchgate key new` prints one.
    /// Empty for no keys: every caller may do everything. The gateway reads the file again on a HUP
    /// signal and when the file has changed.
    pub keys_file: String,
    /// How many requests with an unknown API key, and releases without a key whose token holds no
    /// lease, one address may send in a minute. Further ones are answered with 429. Requests with a
    /// valid key and releases of leases that this gateway granted are not counted.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_refused_per_minute: u64,
    /// How long a session of the dashboard lasts after its user has entered an API key. A change of
    /// this setting does not move the end of sessions that have begun.
    #[schemars(range(min = 60_000, max = 2_592_000_000_u64))]
    pub session_ttl_ms: Millis,
    /// A file with a secret of at least 32 characters, such as `openssl rand -hex 32` prints. Gateways
    /// with the same secret accept each other's sessions and exchanged keys: give all gateways behind a
    /// load balancer the same file. To replace the secret, put a new one below the old one, with
    /// an empty line between, and swap them when all gateways have read it: the first seals, and both are
    /// accepted. The gateway reads the file again on a HUP signal and when the file has changed. Empty for
    /// a random secret, which is lost when the process ends; exchanged keys then need an embedded store.
    pub session_secret_file: String,
}

// === impl AuthConfig ===

impl AuthConfig {
    /// Refuses a `session_secret_file` without a `keys_file`.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let secret = self.session_secret_file.as_str();
        let keys = self.keys_file.as_str();
        Invalid::unless_with(
            ("auth.session_secret_file", secret),
            ("auth.keys_file", keys),
        )
    }

    /// Whether API keys are configured.
    pub fn has_keys(&self) -> bool {
        !self.keys_file.is_empty()
    }
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            keys_file: String::new(),
            // A person who mistypes a key, or a job that still sends an old key, sends fewer requests than this. A
            // flood of requests that would fill the log sends more.
            max_refused_per_minute: 60,
            // Twelve hours, a working day: a user who signs in in the morning need not sign in again before the
            // evening.
            session_ttl_ms: Millis(12 * 60 * 60 * 1_000),
            session_secret_file: String::new(),
        }
    }
}

// === Audit ===

/// The audit log.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditConfig {
    /// The file to which the audit log is appended: one JSON object per line for every lock that was
    /// broken, every refused permission, every reload of the API keys, every sign-in to the dashboard
    /// and sign-out, every start and stop. `-` is the standard output; empty for no audit log. A new
    /// file can be read by its owner only. The gateway opens the file again on a HUP signal,
    /// for rotation of log files.
    pub path: String,
}

// === impl AuditConfig ===

impl AuditConfig {
    /// Whether an audit log is written.
    pub fn is_kept(&self) -> bool {
        !self.path.is_empty()
    }
}
