//! What a caller may ask for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Millis;

/// What a caller may ask for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// The TTL of a lease whose request names none.
    pub default_ttl_ms: Millis,
    /// The shortest TTL that a request may name: 100 or more.
    pub min_ttl_ms: Millis,
    /// The longest TTL that a request may name: 86400000 (a day) or less.
    pub max_ttl_ms: Millis,
    /// The longest hold limit that a request may name: 604800000 (seven days) or less.
    pub max_hold_limit_ms: Millis,
    /// The longest time that a request may wait for a lock (`wait_ms`): 55000 or less. Keep the time-out
    /// of HTTP clients and proxies longer than this.
    pub max_wait_ms: Millis,
    /// How many requests may wait at this gateway. One more is answered with 429.
    pub max_waiters: usize,
    /// How many requests may wait for one lock, at all gateways together. One more is answered with
    /// 429.
    pub max_waiters_per_name: u64,
    /// How long a lease acquired with an `Idempotency-Key` waits for its caller to ask again after
    /// the connection broke before the answer was sent. Then the lease is given back.
    pub reconnect_grace_ms: Millis,
}

// === impl LimitsConfig ===

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
            // A function's runtime or a proxy reconnects within a second or two.
            reconnect_grace_ms: Millis(5_000),
        }
    }
}
