//! Limits of what callers may request (`[limits]`), and how the gateway stops (`[shutdown]`).

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lock::{HoldLimit, Limit, Ttl};

use super::{Invalid, Millis};

/// Limits of what callers may request.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// The TTL of a lease whose request names no TTL: from `min_ttl_ms` to `max_ttl_ms`.
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
    /// How far ahead the end of a reservation (`reserve`) may be: a year or less.
    #[schemars(range(min = 1_000, max = 31_622_400_000_u64))]
    pub max_reserve_ms: Millis,
    /// The longest time that a request may wait for a lock (`wait_ms`). Keep the time-outs of HTTP
    /// clients and proxies longer than this: most give up after 60 s.
    pub max_wait_ms: Millis,
    /// How many requests may wait at this gateway. A further request is answered with 429.
    pub max_waiters: usize,
    /// How many requests may wait for one lock, at all gateways together. A further request is answered
    /// with 429.
    pub max_waiters_per_name: u64,
    /// How many holders may share a lock if their requests name no `limit`, and the largest `limit` that
    /// a request may name.
    #[schemars(range(min = 1, max = u64::from(Limit::MAX)))]
    pub max_holders: u64,
    /// How long a lock remembers its order (`order`) after the last grant with an order. Afterwards a request with a
    /// lower order is granted the lock.
    #[schemars(range(min = 60_000, max = 31_622_400_000_u64))]
    pub order_keep_ms: Millis,
    /// How many locks may remember an order. A request with an order for a further lock is answered with 429. With Redis
    /// the locks are counted in 16,384 parts by their names, and each part may have eight times its share and
    /// 16 more.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub max_orders: u64,
    /// How many fencing tokens (`/locks/NAME/check`) may be checked in a second with one API key at this
    /// gateway. A further check is answered with 429. Checks do not count as requests of the key
    /// (`requests_per_second`).
    #[schemars(range(min = 1, max = 1_000_000))]
    pub checks_per_second: u64,
    /// How many callers may listen to events (`/events`) at this gateway. A further one is answered with
    /// 503.
    pub max_event_streams: usize,
    /// How long a lease is kept if its connection broke before the answer was sent, for a caller that
    /// repeats the acquire with the same `Idempotency-Key`. Then the lease is released. A waiter
    /// with such a key keeps its position in the queue for the same time after its wait.
    // 0 releases the lease at once. With more than a minute, the lock would only look stuck.
    #[schemars(range(min = 0, max = 60_000))]
    pub reconnect_grace_ms: Millis,
}

/// How long, and of how many locks, a store remembers orders.
#[derive(Debug, Clone, Copy)]
pub struct OrderLimits {
    /// How long an order is remembered after the last grant with an order, in ms.
    pub keep_ms: u64,
    /// The largest number of locks whose orders are remembered.
    pub most: u64,
}

impl From<&LimitsConfig> for OrderLimits {
    fn from(limits: &LimitsConfig) -> Self {
        Self {
            keep_ms: limits.order_keep_ms.0,
            most: limits.max_orders,
        }
    }
}

impl Default for OrderLimits {
    fn default() -> Self {
        Self::from(&LimitsConfig::default())
    }
}

// === impl LimitsConfig ===

impl LimitsConfig {
    /// Checks that no limit contradicts another limit.
    pub(super) fn validate(&self) -> Result<(), Invalid> {
        let default = ("limits.default_ttl_ms", self.default_ttl_ms);
        let min = ("limits.min_ttl_ms", self.min_ttl_ms);
        let max = ("limits.max_ttl_ms", self.max_ttl_ms);
        let max_hold = ("limits.max_hold_limit_ms", self.max_hold_limit_ms);
        Invalid::unless_at_most(min, max)?;
        Invalid::unless_at_most(min, default)?;
        Invalid::unless_at_most(default, max)?;
        // A hold limit is never shorter than the TTL of its lease, so a `max_hold_limit_ms` below `min_ttl_ms` would
        // refuse every hold limit.
        Invalid::unless_at_most(min, max_hold)
    }
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            // Long enough to survive a few lost renewals, and short enough to wait until the lease of a crashed holder
            // ends.
            default_ttl_ms: Millis(30_000),
            min_ttl_ms: Millis(100),
            max_ttl_ms: Millis(86_400_000),
            max_hold_limit_ms: Millis(604_800_000),
            // A month: whoever needs a lock for longer should say so again.
            max_reserve_ms: Millis(2_592_000_000),
            // Below the 60 s after which most proxies and load balancers give up on an answer.
            max_wait_ms: Millis(55_000),
            // At 10 KiB for each waiter this is 1 GiB: more waiters need a second gateway.
            max_waiters: 100_000,
            // In a longer queue, the last waiter would not get the lock within the longest wait.
            max_waiters_per_name: 10_000,
            // A lock with more holders is probably a mistake, and one run of a script handles all holders of a lock.
            max_holders: 1_000,
            // A month: an older commit is seldom deployed after a month without any deploy.
            order_keep_ms: Millis(2_592_000_000),
            // At 600 bytes each, these are 60 MB.
            max_orders: 100_000,
            // A check costs one read at the store. So many reads leave most of the time of a Redis server to acquires.
            checks_per_second: 2_000,
            // A listener costs a connection, and up to a few hundred KiB if it reads slowly. Listeners are people and
            // dashboards, so there are few.
            max_event_streams: 256,
            // Long enough for the runtime of a serverless function, or a proxy, which reconnect within a second or two.
            reconnect_grace_ms: Millis(5_000),
        }
    }
}

// === Shutdown ===

/// How the gateway stops.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long the gateway takes at most to end after a TERM or INT signal; less than 250 is taken for
    /// 250. Acquires are refused. Renew and release work until the last second of this time (the last
    /// quarter, if `grace_ms` is below 4000), which is kept for answers that are under way and for
    /// closing the store. The gateway ends sooner if no lease that was granted or renewed here is alive,
    /// no request has come for a second, and every answer was read. For a client that reads nothing of
    /// its answer, the gateway waits until three quarters of this time are over. A second signal ends
    /// the gateway at once. Give an orchestrator more time than this before it kills the gateway.
    #[schemars(range(min = 0, max = 600_000))]
    pub grace_ms: Millis,
    /// How long the gateway still serves every request, acquires included, while `/readyz` fails, so
    /// that load balancers stop sending requests here. The time is the first part of `grace_ms`, at most
    /// half of it. Choose more than a load balancer takes to notice: the period of its check times the
    /// failures that it needs.
    #[schemars(range(min = 0, max = 300_000))]
    pub delay_ms: Millis,
}

// === impl ShutdownConfig ===

impl ShutdownConfig {
    /// The shortest grace period: closing a store takes this long on a machine that is busy with other work.
    pub const MIN_GRACE: Duration = Duration::from_millis(250);

    /// Checks that the delay is at most half of the grace period.
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
        // The grace period is shorter than the 30 s after which Kubernetes kills a container, and leaves time for the
        // steps before and after the end of the gateway.
        Self {
            grace_ms: Millis(10_000),
            // 0, because not every gateway has a load balancer, and a delay would slow down a developer's Ctrl-C.
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
