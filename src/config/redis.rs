//! The Redis store.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Invalid, Millis, RedisTlsConfig, RedisUrl};

/// The Redis store.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// How many connections carry commands, 1 to 256. Each is shared by many requests at once.
    pub connections: u32,
    /// How long connecting may take, 10 to 60000.
    pub connect_timeout_ms: Millis,
    /// How long the answer to one command may take before the command is sent again,
    /// 10 to 60000 and at most `deadline_ms`.
    pub command_timeout_ms: Millis,
    /// How long a request may take with all its resends, 10 to 60000. After it the answer is 503 if
    /// nothing happened and 504 if that is not known. Keep the time-outs of clients longer.
    pub deadline_ms: Millis,
    /// Serve although Redis may evict keys when its memory is full (`maxmemory` with a
    /// `maxmemory-policy` other than `noeviction`). Evicting a lock frees it while it is held.
    pub accept_eviction: bool,
    /// The ACL user, unless the URL of the store names one. Empty for the default user.
    pub username: String,
    /// A file with the password, unless the URL of the store has one. A line break at its end is no
    /// part of it. Read for every new connection. Empty for none.
    pub password_file: String,
    /// TLS to Redis, for a store that is `rediss://`. The files are read again when they have
    /// changed.
    pub tls: RedisTlsConfig,
}

// === impl RedisConfig ===

impl RedisConfig {
    /// Finds out whether a store can be run with these values.
    pub fn validate(&self) -> Result<(), Invalid> {
        Invalid::unless_in("redis.connections", self.connections.into(), 1..=256)?;
        let connect = ("redis.connect_timeout_ms", self.connect_timeout_ms);
        let command = ("redis.command_timeout_ms", self.command_timeout_ms);
        let deadline = ("redis.deadline_ms", self.deadline_ms);
        for (key, value) in [connect, command, deadline] {
            Invalid::unless_in(key, value.0, 10..=60_000)?;
        }
        Invalid::unless_at_most(command, deadline)?;
        let user = ("redis.username", self.username.as_str());
        let password = ("redis.password_file", self.password_file.as_str());
        Invalid::unless_with(user, password)?;
        self.tls.validate()
    }

    /// Finds out whether these values and the URL of the store say the same.
    pub(super) fn validate_for(&self, url: &RedisUrl) -> Result<(), Invalid> {
        let has_login = url.username().is_some() || url.password().is_some();
        let contradiction = |(key, value): (&'static str, &str), allowed: &str| Invalid {
            depends_on: Some("store"),
            ..Invalid::new(key, format!("{value:?}"), allowed)
        };
        if has_login {
            for set in [
                ("redis.username", self.username.as_str()),
                ("redis.password_file", &self.password_file),
            ] {
                if !set.1.is_empty() {
                    let allowed = "nothing, because the URL of the store has a password";
                    return Err(contradiction(set, allowed));
                }
            }
        }
        match self.tls.set() {
            // Somebody believes that what is sent is encrypted.
            Some(set) if !url.is_tls() => {
                let allowed = "nothing, because the store is redis://; for TLS it is rediss://";
                Err(contradiction(set, allowed))
            }
            _ => Ok(()),
        }
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        Self {
            // Commands of many requests travel together on one socket; more sockets mean fewer
            // commands per system call.
            connections: 2,
            // A connect within one network takes a millisecond; half a second outlives a lost SYN.
            connect_timeout_ms: Millis(1_000),
            // Longer than any healthy answer, short enough for two resends within the deadline.
            command_timeout_ms: Millis(1_500),
            // Below the 10 s after which many HTTP clients give up.
            deadline_ms: Millis(5_000),
            accept_eviction: false,
            username: String::new(),
            password_file: String::new(),
            tls: RedisTlsConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_at_least_one_connection() {
        let config = RedisConfig {
            connections: 0,
            ..RedisConfig::default()
        };
        assert_eq!(config.validate().unwrap_err().key, "redis.connections");
    }

    #[test]
    fn a_command_fits_into_the_deadline() {
        let config = RedisConfig {
            command_timeout_ms: Millis(5_001),
            ..RedisConfig::default()
        };
        let invalid = config.validate().unwrap_err();
        assert_eq!(invalid.depends_on, Some("redis.deadline_ms"));
    }
}
