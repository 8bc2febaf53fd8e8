//! The terms by which a run is judged: the least traffic, the exactness of the machine, and what the store promises.

use super::op::MS;

/// The terms by which a run is judged: the least traffic, the exactness of the machine, and what the store promises.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// The run is invalid with fewer grants a second.
    pub(crate) grants_per_second: f64,
    /// Factor for promised times of liveness: ten on a machine that also does other work.
    pub(crate) slack: u64,
    /// How long the store keeps the position, or the grant, of a caller with an idempotency key that went away.
    pub(crate) grace_ms: u64,
    /// How many leases of a lock a history shows at most.
    pub(crate) history_entries: usize,
    /// Whether the store keeps the order only among waiters of the same gateway.
    pub(crate) order_within_gateways: bool,
    /// Whether clients of the run share locks.
    pub(crate) shares: bool,
    /// Whether clients of the run ask for groups, histories and checks, and request releases.
    pub(crate) cooperates: bool,
}

// === impl Terms ===

impl Terms {
    /// The time within which 99 of 100 hand-offs must happen if there is no fault.
    pub(super) fn healthy_hand_off(&self) -> u64 {
        50 * MS * self.slack
    }

    /// The time within which a hand-off must happen if its message was lost: one period of the rounds, and a second.
    pub(super) fn hand_off(&self) -> u64 {
        2_000 * MS + self.second()
    }

    /// The second that the invariants allow for delays.
    pub(super) fn second(&self) -> u64 {
        // A second is less exact than 50 ms on a machine that also does other work, so it is at most doubled.
        1_000 * MS * self.slack.min(2)
    }

    pub(super) fn grace(&self) -> u64 {
        self.grace_ms * MS
    }
}
