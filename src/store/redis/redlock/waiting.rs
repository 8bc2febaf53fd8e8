//! Acquire and leave, as those who wait see them: in order at this gateway.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    lock::{LockName, TokenHash},
    store::{
        StoreError,
        contract::{
            Acquisition, Attempt, Confirmation, Contention, Holder, Leaving, QueuePosition,
        },
        parking::News,
        positions::Position,
    },
};

use super::{
    acquire::AttemptOutcome,
    calls::ReserveRequest,
    contender::WAKES,
    local_queue::{JoinOutcome, LeaveOutcome, LocalQueue},
    shared::Shared,
};

// === impl Shared ===

impl Shared {
    /// Acquires a lock that is free and for which nobody stands in line here; else joins the line, if the
    /// attempt wants to wait.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        attempt: &Attempt,
    ) -> Result<Acquisition, StoreError> {
        let local_queue = self.local_queues.of(&attempt.name);
        // Where somebody waits the lock is not taken, and who only asks needs no turn.
        let turn = match (local_queue.len(Instant::now()), local_queue.turn.try_lock()) {
            (0, Ok(turn)) => Some(turn),
            // Somebody else just tries. Whoever wants to wait can as well do so in the line.
            (0, Err(_)) if attempt.wait.is_none() => Some(self.turn(&local_queue).await?),
            _ => None,
        };
        let request = ReserveRequest {
            take: turn.is_some() && local_queue.len(Instant::now()) == 0,
            undelivered_ttl: None,
            wake_within: attempt.wait.map(|_| WAKES),
        };
        let keys = self.keys(&attempt.name);
        let holder = match self.attempt(&keys, attempt, request).await? {
            AttemptOutcome::Granted(lease, _) => return Ok(Acquisition::Granted(lease)),
            AttemptOutcome::Done(acquisition) => return Ok(acquisition),
            AttemptOutcome::Held(holder) => Some(holder),
            // Whose lease is at a minority may have released it long ago.
            AttemptOutcome::Split(_) | AttemptOutcome::Free => None,
        };
        let joined = self.join(&local_queue, attempt, holder);
        drop(turn);
        Ok(joined)
    }

    /// Takes a place in the line for an attempt, or answers why not.
    fn join(
        self: &Arc<Self>,
        local_queue: &Arc<LocalQueue>,
        attempt: &Attempt,
        holder: Option<Holder>,
    ) -> Acquisition {
        let Some(waiting) = attempt.wait else {
            return match local_queue.drop_keyed(attempt) {
                Err(_in_other_words) => Acquisition::IdempotencyMismatch,
                Ok(superseded) => {
                    self.supersede(superseded);
                    let waiters = local_queue.len(Instant::now());
                    Acquisition::Held(Contention { holder, waiters })
                }
            };
        };
        match local_queue.join(attempt, waiting, Instant::now()) {
            JoinOutcome::Full => Acquisition::QueueFull,
            JoinOutcome::Mismatch => Acquisition::IdempotencyMismatch,
            JoinOutcome::Queued {
                ahead,
                superseded,
                contend,
            } => {
                self.supersede(superseded);
                if contend {
                    self.start_contending(&attempt.name, local_queue);
                }
                let waiters = local_queue.len(Instant::now());
                let contention = Contention { holder, waiters };
                Acquisition::Queued(QueuePosition { ahead, contention })
            }
        }
    }

    fn supersede(&self, superseded: Option<TokenHash>) {
        if let Some(token) = superseded {
            // Whoever has left already need not hear it.
            let _delivered = self.gateway.parking.deliver(&token, News::Superseded);
        }
    }

    /// Takes an attempt out of the line. What it was granted in that instant it has.
    pub(super) async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let (keys, local_queue) = (self.keys(name), self.local_queues.of(name));
        let mut left = local_queue.leave(token, keep_for, Instant::now());
        if matches!(left, LeaveOutcome::BeingTried | LeaveOutcome::NotQueued) {
            // It may be granted the lock just now: when the try for it is over, that is known.
            let turn = self.turn(&local_queue).await;
            // Also where nobody knows: nobody waits in this place any more.
            left = local_queue.leave_now(token, keep_for, Instant::now());
            let _turn = turn?;
            let confirmed = match left {
                // The try has come to nothing, or nobody knows and it is withdrawn from every node.
                LeaveOutcome::Removed => self.confirm(name, token).await.ok(),
                LeaveOutcome::NotQueued => Some(self.confirm(name, token).await?),
                LeaveOutcome::Superseded | LeaveOutcome::BeingTried => None,
            };
            match confirmed {
                Some(Confirmation::Confirmed(lease)) => return Ok(Leaving::Granted(lease)),
                Some(Confirmation::Superseded) => return Ok(Leaving::Superseded),
                Some(Confirmation::Lost) | None => {}
            }
        }
        match left {
            LeaveOutcome::Superseded => Ok(Leaving::Superseded),
            LeaveOutcome::Removed | LeaveOutcome::NotQueued | LeaveOutcome::BeingTried => {
                Ok(Leaving::Left(self.contention(&keys, &local_queue).await))
            }
        }
    }

    /// Tells those who watch it where they stand.
    pub(super) fn show_positions(&self) {
        let positions = self.gateway.parking.positions();
        let now = Instant::now();
        for (name, tokens) in positions.by_name() {
            let Some(local_queue) = self.local_queues.existing(&name) else {
                continue;
            };
            let waiters = local_queue.len(now);
            for token in tokens {
                if let Some(ahead) = local_queue.ahead_of(&token, now) {
                    positions.publish(&token, Position { ahead, waiters });
                }
            }
        }
    }
}
