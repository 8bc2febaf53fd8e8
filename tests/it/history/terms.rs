//! What a run must come to, and how exact its machine is.

use super::op::MS;

/// What a run must come to, and how exact its machine is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// With fewer grants a second there was no traffic to speak of.
    pub(crate) grants_per_second: f64,
    /// By how much stated times of liveness are multiplied: ten on a machine that does other things.
    pub(crate) slack: u64,
    /// For how long a place, or what was granted to it, is kept for a caller with an idempotency key.
    pub(crate) grace_ms: u64,
    /// Whether those who wait are in order only among those who wait at the same gateway.
    pub(crate) order_within_gateways: bool,
    /// Whether locks are shared, too.
    pub(crate) shares: bool,
    /// Whether several locks are taken as one, and holders asked to release theirs.
    pub(crate) cooperates: bool,
}

// === impl Terms ===

impl Terms {
    /// Within which 99 of 100 hand-offs come about while nothing is broken.
    pub(super) fn healthy_hand_off(&self) -> u64 {
        50 * MS * self.slack
    }

    /// Within which a hand-off comes about of which no message tells: one period, and a second.
    pub(super) fn hand_off(&self) -> u64 {
        2_000 * MS + self.second()
    }

    /// The second by which something may be late.
    pub(super) fn second(&self) -> u64 {
        // On a machine that does other things a second is not as exact as 50 ms.
        1_000 * MS * self.slack.min(2)
    }

    pub(super) fn grace(&self) -> u64 {
        self.grace_ms * MS
    }
}
