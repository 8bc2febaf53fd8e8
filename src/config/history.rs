//! How much of the history of locks is kept (`[history]`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Millis;

/// The history of locks: who held a lock, from when to when, and how it ended.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    /// How many past leases of a lock are shown, the newest ones. 0 for no history: nothing is
    /// recorded. Give all gateways on one store the same value.
    #[schemars(range(min = 0, max = 500))]
    pub entries: usize,
    /// How long a lease is shown after its end. Redis frees the memory within a week after that.
    #[schemars(range(min = 60_000, max = 7_776_000_000_u64))]
    pub keep_ms: Millis,
    /// Leases that were shorter than this are only counted, unless they were broken or lost.
    #[schemars(range(min = 1_000, max = 86_400_000))]
    pub after_ms: Millis,
    /// Record the addresses of callers without API keys. A caller on this machine (a loopback address)
    /// is always recorded by its address, a caller with an API key by the name of the key.
    pub addresses: bool,
}

// === impl HistoryConfig ===

impl Default for HistoryConfig {
    fn default() -> Self {
        Self {
            // A screen or two, and at 1 KiB each at most 50 KiB for a lock.
            entries: 50,
            // An incident is looked into in the week after it.
            keep_ms: Millis(604_800_000),
            // Writing two records costs about as much as an acquire and a release. At one second, a lock writes at most
            // one of either each second.
            after_ms: Millis(1_000),
            // Addresses may identify people, and behind a proxy they say nothing.
            addresses: false,
        }
    }
}
