//! The Redlock store.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lock::Ttl;

use super::{Invalid, LimitsConfig, Millis, StoreUrl};

/// The quorum, for a store that is `redlock://`. How its nodes are reached is said in `[redis]`, but for
/// `wait_replicas`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedlockConfig {
    /// The longest TTL that a request may name, if `limits.max_ttl_ms` is not shorter. A node that was
    /// started does not vote for as long, because it may have forgotten leases that still last.
    #[schemars(range(min = Ttl::MIN.as_millis(), max = Ttl::MAX.as_millis()))]
    pub max_ttl_ms: Millis,
    /// How long a node may take for one answer. One that takes longer has no vote in what it was asked.
    /// Much shorter than the TTLs in use.
    #[schemars(range(min = 10, max = 10_000))]
    pub node_timeout_ms: Millis,
    /// What the nodes keep when they are started again: `unknown`, or `aof-always` if every one of them
    /// has `appendonly yes` and `appendfsync always`. Then they need not wait before they vote.
    pub persistence: Persistence,
    /// Let nodes vote as soon as they are started: for a quorum that is new, and for trials. Leave it
    /// out when that is over: a node that is restarted would grant again what it has forgotten.
    pub vote_at_once: bool,
}

/// What a node keeps when it is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Persistence {
    /// Nobody says.
    Unknown,
    /// Everything that it has answered.
    AofAlways,
}

// === impl RedlockConfig ===

impl RedlockConfig {
    /// Finds out whether the limits fit to these values, if the store is a quorum.
    pub(super) fn validate_for(
        &self,
        url: &StoreUrl,
        limits: &LimitsConfig,
    ) -> Result<(), Invalid> {
        if !matches!(url, StoreUrl::Redlock(_)) {
            return Ok(());
        }
        let most = ("redlock.max_ttl_ms", self.max_ttl_ms);
        for ttl in [
            ("limits.min_ttl_ms", limits.min_ttl_ms),
            ("limits.default_ttl_ms", limits.default_ttl_ms),
        ] {
            Invalid::unless_at_most(ttl, most)?;
        }
        Ok(())
    }

    /// Whether a node that is started again may have forgotten something that it had answered.
    pub fn forgets(&self) -> bool {
        self.persistence != Persistence::AofAlways
    }

    /// How long a node must have run before it votes. Its clock may be a little off.
    pub fn wait(&self) -> Duration {
        if self.vote_at_once || self.persistence == Persistence::AofAlways {
            return Duration::ZERO;
        }
        let ttl = self.max_ttl_ms.duration();
        // For how long it has run it says in whole seconds.
        ttl + ttl / 100 + Duration::from_secs(1)
    }
}

impl Default for RedlockConfig {
    fn default() -> Self {
        Self {
            // Twice the default TTL: who needs more renews. A started node is missed for as long.
            max_ttl_ms: Millis(60_000),
            // Longer than any healthy answer in one region, and short before any TTL of seconds.
            node_timeout_ms: Millis(250),
            persistence: Persistence::Unknown,
            vote_at_once: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_started_node_waits_as_long_as_the_longest_lease_and_its_clock_may_take() {
        let mut config = RedlockConfig::default();
        assert_eq!(config.wait(), Duration::from_millis(61_600));
        config.persistence = Persistence::AofAlways;
        assert_eq!(config.wait(), Duration::ZERO);
        config.persistence = Persistence::Unknown;
        config.vote_at_once = true;
        assert_eq!(config.wait(), Duration::ZERO);
    }

    #[test]
    fn the_default_ttl_fits_below_the_longest_where_there_is_a_quorum() {
        let config = RedlockConfig {
            max_ttl_ms: Millis(20_000),
            ..RedlockConfig::default()
        };
        let limits = LimitsConfig::default();
        let single = "redis://h".parse().unwrap();
        config.validate_for(&single, &limits).unwrap();
        let quorum = "redlock://a,b,c".parse().unwrap();
        let invalid = config.validate_for(&quorum, &limits).unwrap_err();
        assert_eq!(
            (invalid.key, invalid.depends_on),
            ("limits.default_ttl_ms", Some("redlock.max_ttl_ms"))
        );
    }
}
