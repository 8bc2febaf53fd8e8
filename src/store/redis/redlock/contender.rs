//! Contends for a lock, for those who stand in its line at this gateway: one for each lock, however many
//! wait.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::{
    lock::LockName,
    store::{StoreError, contract::Holder, parking::News},
};

use super::{
    acquire::AttemptOutcome,
    backoff::{Backoff, up_to},
    calls::ReserveRequest,
    local_queue::LocalQueue,
    local_waiter::LocalWaiter,
    nonce::Nonce,
    shared::Shared,
    sweeper::SweepTarget,
    try_guard::TryGuard,
};

/// When it is tried again.
enum Pause {
    /// At once.
    None,
    /// When somebody's lease is over.
    For(Duration),
    /// Soon: several have split the nodes among themselves, by a try that took so long.
    Split(Duration),
}

/// How long it is until it is looked again for what nobody was told of, at most; half of it at least.
const PERIOD: Duration = Duration::from_secs(1);
/// For how long a node is asked to wake this gateway.
pub(super) const WAKES: Duration = Duration::from_secs(5);
/// Those who are woken together must not come together.
const SCATTER: Duration = Duration::from_millis(3);
/// How long it is until it is tried again where the nodes do not answer.
const AWAY: Duration = Duration::from_millis(400);
/// A key is gone when its instant has passed.
const MARGIN: Duration = Duration::from_millis(2);

// === impl Shared ===

impl Shared {
    /// Starts to contend for a lock in whose line somebody stands.
    pub(super) fn start_contending(
        self: &Arc<Self>,
        name: &LockName,
        local_queue: &Arc<LocalQueue>,
    ) {
        let (shared, name, local_queue) = (Arc::clone(self), name.clone(), Arc::clone(local_queue));
        let (stopped, closing) = (self.lifecycle.stopped(), self.closing.clone());
        self.lifecycle.spawn_background(async move {
            tokio::select! {
                () = shared.contend(&name, &local_queue) => {}
                () = stopped => {}
                () = closing.cancelled() => {}
            }
        });
    }

    /// Goes on until nobody stands in the line.
    async fn contend(&self, name: &LockName, local_queue: &LocalQueue) {
        let mut splits = Backoff::new();
        while let Some(head) = local_queue.head(Instant::now()) {
            // What has become free until now is seen by this try.
            let _seen = local_queue.woken.notified().now_or_never();
            local_queue.begin();
            let tried = self.try_for(name, local_queue, &head).await;
            local_queue.end();
            let pause = match tried {
                Ok(Pause::Split(took)) => {
                    // Nobody has it, so there is nothing to be woken for; and woken by one message all
                    // who have split the nodes would come together again.
                    sleep(splits.next(took).min(PERIOD)).await;
                    None
                }
                Ok(Pause::For(pause)) => {
                    splits = Backoff::new();
                    Some(pause)
                }
                Ok(Pause::None) => None,
                Err(error) => {
                    debug!(%name, %error, "to be tried again for those who wait");
                    Some(up_to(AWAY))
                }
            };
            let Some(pause) = pause else { continue };
            let longest = PERIOD / 2 + up_to(PERIOD / 2);
            let pause = (pause + MARGIN).min(longest);
            tokio::select! {
                () = sleep(pause) => {}
                () = local_queue.woken.notified() => sleep(up_to(SCATTER)).await,
            }
        }
    }

    /// Tries once for the head.
    async fn try_for(
        &self,
        name: &LockName,
        local_queue: &LocalQueue,
        head: &LocalWaiter,
    ) -> Result<Pause, StoreError> {
        let keys = self.keys(name);
        let left = head.until.saturating_duration_since(Instant::now());
        let request = ReserveRequest {
            take: true,
            undelivered_ttl: (!head.attended).then_some(left),
            wake_within: Some(WAKES),
        };
        let turn = self.turn(local_queue).await?;
        if !local_queue.try_for(head) {
            return Ok(Pause::None);
        }
        let began = Instant::now();
        let tried = self.attempt(&keys, &head.attempt, request).await?;
        match tried {
            AttemptOutcome::Granted(lease, nonce) => {
                let lasts = lease.expires_in;
                let token = &head.attempt.token;
                let delivered = local_queue.take(head)
                    && (!head.attended
                        || self.gateway.parking.deliver(token, News::Granted(lease)));
                if delivered {
                    return Ok(Pause::For(lasts));
                }
                self.take_back(name, head, &nonce).await;
                drop(turn);
                Ok(Pause::None)
            }
            AttemptOutcome::Held(holder) | AttemptOutcome::Split(Some(holder)) => {
                Ok(Pause::For(left_of(&holder)))
            }
            AttemptOutcome::Split(None) | AttemptOutcome::Free => Ok(Pause::Split(began.elapsed())),
            AttemptOutcome::Done(_) => {
                // It is answered when it asks again.
                if local_queue.take(head) && head.attended {
                    let _delivered = self
                        .gateway
                        .parking
                        .deliver(&head.attempt.token, News::Forgotten);
                }
                Ok(Pause::None)
            }
        }
    }

    /// Takes a grant back of which nobody was told.
    async fn take_back(&self, name: &LockName, head: &LocalWaiter, nonce: &Nonce) {
        let keys = self.keys(name);
        let token = &head.attempt.token;
        // From here on nobody is answered it, and it is swept if this ends half-way.
        let mut guard = TryGuard::new(self, name, token, nonce, true);
        let nodes = self.quorum.nodes().iter();
        let pending_withdrawals =
            nodes.map(|node| self.sweeper.pending_withdrawals.begin(node.index, token));
        let _until_then: Vec<_> = pending_withdrawals.collect();
        let withdrawn = self.quorum.ask(
            |node| timeout(node.timeout, node.withdraw(&keys, token, Some(nonce))),
            |_| false,
        );
        let withdrawn = withdrawn.await;
        guard.disarm();
        for node in withdrawn.others(|answer| matches!(answer, Ok(Ok(_)))) {
            let swept = SweepTarget::Try(nonce.clone());
            self.sweeper.sweep(node, name, token, swept);
        }
    }
}

fn left_of(holder: &Holder) -> Duration {
    match holder {
        Holder::Lease(lease) => lease.expires_in,
        Holder::Foreign { expires_in, .. } => expires_in.unwrap_or(PERIOD),
    }
}
