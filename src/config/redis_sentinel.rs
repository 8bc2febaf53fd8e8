//! The sentinels of the Redis store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Millis};

/// The sentinels, for a store that is `redis+sentinel://`. They are reached over TLS if Redis is.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisSentinelConfig {
    /// How long a sentinel may take to say who the master is, connecting included, 10 to 60000.
    /// Those that answer are not kept waiting for the others.
    pub timeout_ms: Millis,
    /// The ACL user of the sentinels. Empty for the default user. The user and the password of Redis
    /// itself are not sent to them.
    pub username: String,
    /// A file with the password of the sentinels. A line break at its end is no part of it. Read for
    /// every new connection. Empty for none.
    pub password_file: String,
}

// === impl RedisSentinelConfig ===

impl RedisSentinelConfig {
    /// Finds out whether sentinels can be asked with these values. Reads no file.
    pub fn validate(&self) -> Result<(), Invalid> {
        let timeout = self.timeout_ms.0;
        Invalid::unless_in("redis.sentinel.timeout_ms", timeout, 10..=60_000)?;
        let user = ("redis.sentinel.username", self.username.as_str());
        let password = ("redis.sentinel.password_file", self.password_file.as_str());
        Invalid::unless_with(user, password)
    }

    /// The first key of a login that is set, and its value.
    pub(super) fn set(&self) -> Option<(&'static str, &str)> {
        [
            ("redis.sentinel.username", self.username.as_str()),
            ("redis.sentinel.password_file", &self.password_file),
        ]
        .into_iter()
        .find(|(_, value)| !value.is_empty())
    }
}

impl Default for RedisSentinelConfig {
    fn default() -> Self {
        Self {
            // A sentinel has next to nothing to do: one that takes longer is away, and while the
            // master is looked for everybody waits.
            timeout_ms: Millis(500),
            username: String::new(),
            password_file: String::new(),
        }
    }
}
