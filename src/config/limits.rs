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
            // A function's runtime or a proxy reconnects within a second or two.
            reconnect_grace_ms: Millis(5_000),
        }
    }
}
