//! What there is to be seen while an acquire waits.

use std::time::Duration;

use super::{ClientError, Holder, Inspection, Problem};

/// News of an acquire that waits. What is not known is not there: a caller may not be allowed to see
/// the lock, and the gateway that says how it stands may just have gone.
#[derive(Debug, Clone, Default)]
pub struct WaitStatus {
    /// The place in the queue: 1 is the next to be served. It is found by the owner and by how long
    /// the request has waited, so of two that came in the same moment it may be the other's.
    pub position: Option<u64>,
    /// How many wait in all.
    pub waiters: Option<u64>,
    /// Who holds the lock.
    pub holder: Option<Holder>,
    /// Why the gateway cannot be asked at the moment; it is tried again.
    pub trouble: Option<ClientError>,
}

/// Of two clocks that began to count within a request of each other.
const SAME_MOMENT: Duration = Duration::from_millis(1_500);

// === impl WaitStatus ===

impl WaitStatus {
    /// What an answer to a wait that ran out tells.
    pub(super) fn of_problem(self, problem: &Problem) -> Self {
        Self {
            waiters: problem.waiters,
            holder: problem.holder.clone(),
            trouble: None,
            ..self
        }
    }

    /// What a look at the lock tells somebody who asked for it as `owner`, `waited` ago.
    pub(super) fn of_look(lock: Inspection, owner: Option<&str>, waited: Duration) -> Self {
        let off = |waited_ms| Duration::from_millis(waited_ms).abs_diff(waited);
        let ours = lock
            .waiters
            .iter()
            .filter(|waiter| waiter.owner.as_deref() == owner)
            .min_by_key(|waiter| off(waiter.waited_ms))
            .filter(|waiter| off(waiter.waited_ms) <= SAME_MOMENT);
        Self {
            position: ours.map(|waiter| waiter.position),
            waiters: Some(lock.waiter_count),
            holder: lock.holder,
            trouble: None,
        }
    }

    /// The same, with a setback.
    pub(super) fn with_trouble(self, trouble: ClientError) -> Self {
        Self {
            trouble: Some(trouble),
            ..self
        }
    }
}
