//! What a caller may ask for, and how the gateway stops.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lock::{HoldLimit, Limit, Ttl};

use super::{Invalid, Millis};

/// What a caller may ask for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// The TTL of a lease whose request names none. Between the shortest and the longest.
    #[schemars(range(min = Ttl::MIN.as_millis(), max = Ttl::MAX.as_millis()))]
    pub default_ttl_ms: Millis,
    /// The shortest TTL that a request may name.
    #[schemars(range(min = Ttl::MIN.as_millis(), max = Ttl::MAX.as_millis()))]
    pub min_ttl_ms: Millis,
    /// The longest TTL that a request may name: a day or less.
    #[schemars(range(min = Ttl::MIN.as_millis(), max = Ttl::MAX.as_millis()))]
    pub max_ttl_ms: Millis,
    /// The longest hold limit that a request may name: seven days or less.
    #[schemars(range(min = Ttl::MIN.as_millis(), max = HoldLimit::MAX.as_millis()))]
    pub max_hold_limit_ms: Millis,
    /// The longest time that a request may wait for a lock (`wait_ms`). Keep the time-out of HTTP
    /// clients and proxies longer than this: most give up after 60 s.
    pub max_wait_ms: Millis,
    /// How many requests may wait at this gateway. One more is answered with 429.
    pub max_waiters: usize,
    /// How many requests may wait for one lock, at all gateways together. One more is answered with
    /// 429.
    pub max_waiters_per_name: u64,
    /// How many may share a lock whose requests name no `limit`, and the largest `limit` that a request
    /// may name.
    #[schemars(range(min = 1, max = u64::from(Limit::MAX)))]
    pub max_holders: u64,
    /// How many may listen to events (`/events`) at this gateway. One more is answered with 503.
    pub max_event_streams: usize,
    /// How long a lease acquired with an `Idempotency-Key` waits for its caller to ask again after the
    /// connection broke before the answer was sent. Then the lease is released.
    // Zero gives back at once. Longer than a minute the lock only looks stuck.
    #[schemars(range(min = 0, max = 60_000))]
    pub reconnect_grace_ms: Millis,
}

// === impl LimitsConfig ===

impl LimitsConfig {
    /// Finds out whether these limits can be kept together.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let default = ("limits.default_ttl_ms", self.default_ttl_ms);
        let min = ("limits.min_ttl_ms", self.min_ttl_ms);
        let max = ("limits.max_ttl_ms", self.max_ttl_ms);
        let max_hold = ("limits.max_hold_limit_ms", self.max_hold_limit_ms);
        Invalid::unless_at_most(min, max)?;
        Invalid::unless_at_most(min, default)?;
        Invalid::unless_at_most(default, max)?;
        // A hold limit is never shorter than its TTL, so this bound would refuse every request.
        Invalid::unless_at_most(min, max_hold)
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            // Long enough for a few lost renewals, short enough to wait out a crashed holder.
            default_ttl_ms: Millis(30_000),
            min_ttl_ms: Millis(100),
            max_ttl_ms: Millis(86_400_000),
            max_hold_limit_ms: Millis(604_800_000),
            // Below the 60 s after which most proxies and load balancers give up on an answer.
            max_wait_ms: Millis(55_000),
            // At 10 KiB each this is 1 GiB; a gateway that has so many waiters needs a second one.
            max_waiters: 100_000,
            // Nobody at the end of a longer queue gets the lock within the longest wait.
            max_waiters_per_name: 10_000,
            // Readers beyond that are a mistake sooner than a wish, and all are told of in one script.
            max_holders: 1_000,
            // Each costs a connection and up to a few hundred KiB if it reads slowly; people and
            // dashboards listen, not workers.
            max_event_streams: 256,
            // A function's runtime or a proxy reconnects within a second or two.
            reconnect_grace_ms: Millis(5_000),
        }
    }
}

// === Shutdown ===

/// How the gateway stops.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long a gateway takes to end after a TERM or INT signal at most; less than 250 is taken for
    /// 250. Nothing is acquired any more; renew and release go on until the last second of it (the last
    /// quarter, if it is shorter than 4000), which is for answers that are under way and for closing
    /// the store. It ends sooner: as soon as no lease that was granted or renewed here lives, no
    /// request has come for a second, and every answer was taken. A client that takes nothing of its
    /// answer is waited for until three quarters of this time are over. A second signal ends it at
    /// once. Give an orchestrator more time than this before it kills.
    #[schemars(range(min = 0, max = 600_000))]
    pub grace_ms: Millis,
    /// The first part of `grace_ms`: at most half of it. In it only `/readyz` fails, so that load
    /// balancers stop sending requests here; those that come are served like any other, acquires too.
    /// Longer than it takes a load balancer to notice: the period of its check times the failures that
    /// it needs.
    #[schemars(range(min = 0, max = 300_000))]
    pub delay_ms: Millis,
}

// === impl ShutdownConfig ===

impl ShutdownConfig {
    /// What it takes to close a store in good order, on a machine that does other things as well.
    pub const SHORTEST: Duration = Duration::from_millis(250);

    /// Finds out whether the gateway can stop in this way.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        if self.delay_ms.0 > self.grace_ms.0 / 2 {
            let half = format!("at most half of shutdown.grace_ms, {}", self.grace_ms.0 / 2);
            return Err(Invalid::new("shutdown.delay_ms", self.delay_ms.0, half)
                .depending_on("shutdown.grace_ms"));
        }
        Ok(())
    }
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        // Below the 30 s after which Kubernetes kills, with room for what comes before and after.
        Self {
            grace_ms: Millis(10_000),
            // Not everybody has a load balancer, and a developer's Ctrl-C waits for nobody.
            delay_ms: Millis(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut LimitsConfig)) -> Invalid {
        let mut limits = LimitsConfig::default();
        change(&mut limits);
        limits.validate().unwrap_err()
    }

    #[test]
    fn the_default_ttl_lies_between_the_shortest_and_the_longest() {
        let invalid = refused(|limits| limits.max_ttl_ms = Millis(20_000));
        assert_eq!(
            invalid.to_string(),
            "limits.default_ttl_ms is 30000; allowed is at most 20000, the value of limits.max_ttl_ms"
        );
        assert_eq!(invalid.depends_on, Some("limits.max_ttl_ms"));
        let invalid = refused(|limits| limits.min_ttl_ms = Millis(30_001));
        assert_eq!(invalid.key, "limits.min_ttl_ms");
        let invalid = refused(|limits| limits.max_hold_limit_ms = Millis(100 - 1));
        assert_eq!(invalid.depends_on, Some("limits.max_hold_limit_ms"));
    }

    #[test]
    fn the_delay_leaves_half_of_the_grace() {
        let with = |delay, grace| ShutdownConfig {
            delay_ms: Millis(delay),
            grace_ms: Millis(grace),
        };
        with(5_000, 10_000).validate().unwrap();
        let invalid = with(5_001, 10_000).validate().unwrap_err();
        assert_eq!(invalid.key, "shutdown.delay_ms");
        assert_eq!(invalid.depends_on, Some("shutdown.grace_ms"));
        assert!(with(1, 0).validate().is_err());
    }
}
