//! Keeps the queues moving that somebody stands in here: ends of leases, grants that nobody waits
//! for any more, messages, and the rounds that find what all of these have missed.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::{sync::mpsc, time::Duration};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    lifecycle::Lifecycle,
    lock::{LockName, TokenHash},
    store::{Partition, StoreError},
};

use super::{
    super::{
        Slot, SlotTags,
        client::{
            dispatch::{Dispatch, on_each},
            shard::Shard,
        },
        gateways::Subscription,
        keys::Keys,
        scripts::{Advance, GrantKnowledge, Scripts},
    },
    extensions::Extensions,
    gateway::RedisGateway,
    lost_waiters::LostWaiters,
    rounds::Rounds,
    timers::{DueEvents, OrphanKind, OrphanedAttempt, TimerActions, run_timers},
};

/// What it takes to act on a queue.
#[derive(Clone)]
pub(crate) struct QueueMaintenance {
    pub(crate) gateway: Arc<RedisGateway>,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) tags: Arc<SlotTags>,
}

// === impl QueueMaintenance ===

impl QueueMaintenance {
    /// Starts all that goes on by itself, until the program stops or the store is closed.
    pub(crate) fn start(
        self,
        orphans: mpsc::Receiver<OrphanedAttempt>,
        lifecycle: &Lifecycle,
        closing: &CancellationToken,
    ) {
        let (dispatch, here) = (Arc::clone(&self.dispatch), self.clone());
        let rounds = async move {
            on_each(&dispatch, |shard| Box::pin(here.rounds(shard).go())).await;
        };
        let subscription = Subscription {
            id: self.gateway.id.clone(),
            channels: self.gateway.channels.clone(),
            news_wanted: Arc::clone(&self.gateway.news_wanted),
            dispatch: Arc::clone(&self.dispatch),
        };
        let gateway = Arc::clone(&self.gateway);
        let all: [BoxFuture<'static, ()>; 3] = [
            Box::pin(rounds),
            Box::pin(subscription.listen(move |heard| gateway.ingest_heard(heard))),
            Box::pin(self.run_timers(orphans)),
        ];
        for task in all {
            let (stopped, closed) = (lifecycle.stopped(), closing.clone());
            lifecycle.spawn_background(async move {
                tokio::select! {
                    () = task => {}
                    () = stopped => {}
                    () = closed.cancelled() => {}
                }
            });
        }
    }

    fn rounds(&self, shard: Arc<Shard>) -> Rounds {
        Rounds {
            shard,
            gateway: Arc::clone(&self.gateway),
            dispatch: Arc::clone(&self.dispatch),
            tags: Arc::clone(&self.tags),
            lost_waiters: LostWaiters::default(),
            last_shown: None,
            run_id: None,
            extensions: Extensions::default(),
        }
    }

    /// Acts on what falls due.
    async fn run_timers(self, orphans: mpsc::Receiver<OrphanedAttempt>) {
        let due = DueEvents {
            ends: &self.gateway.timers,
            kept: &self.gateway.kept,
            orphans,
        };
        run_timers(due, &self).await;
    }
}

impl TimerActions for QueueMaintenance {
    fn partition(&self, name: &LockName) -> Partition {
        self.dispatch.topology.partition(Slot::of_name(name))
    }

    /// Passes a lock on if its lease has ended. Nobody may wait here any more: those who wait elsewhere
    /// may not know when it ends.
    fn advance(&self, name: LockName) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let awaited = self.gateway.parking.has_waiters(&name);
            let keys = Keys::of(&name, &self.tags, &self.gateway.id);
            let advance = self.scripts.advance(&self.dispatch, &self.gateway, &keys);
            match advance.await {
                Ok(Advance::Held(Some(left))) => self.gateway.watch_expiry(&name, left),
                // Somebody waits here, and the store knows of nobody.
                Ok(Advance::Idle) if awaited => {
                    self.gateway
                        .parking
                        .notify_forgotten(|waited| *waited == name);
                }
                // The next round looks again, if anybody waits.
                Ok(Advance::Held(None) | Advance::Passed | Advance::Idle) => {}
                Err(error) => debug!(%name, %error, "the next round looks again"),
            }
        })
    }

    /// Gives up a place that was kept for a request which has not come. If that fails it counts for
    /// nothing either, but among those who wait until its turn comes.
    fn lapse(&self, name: LockName, token: TokenHash) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let keys = Keys::of(&name, &self.tags, &self.gateway.id);
            let (dispatch, gateway) = (&self.dispatch, &self.gateway);
            match self.scripts.lapse(dispatch, gateway, &keys, &token).await {
                Ok(true) => self.gateway.timers.set(&name, Duration::ZERO),
                Ok(false) => {}
                Err(error) => {
                    debug!(%name, %error, "a place that is kept for nobody stands until its turn comes");
                }
            }
        })
    }

    /// Gives back what nobody waits for. Until the store has answered it may be held.
    fn give_back(&self, orphan: OrphanedAttempt) -> BoxFuture<'_, Option<OrphanedAttempt>> {
        Box::pin(async move {
            let OrphanedAttempt { name, token, kind } = &orphan;
            let keys = Keys::of(name, &self.tags, &self.gateway.id);
            let known = match *kind {
                OrphanKind::Grant(fence) => GrantKnowledge::Undelivered(fence),
                OrphanKind::Departed(fence, keeper) => GrantKnowledge::Departed(fence, keeper),
            };
            let dispatch = &self.dispatch;
            let give_back = self
                .scripts
                .give_back(dispatch, &self.gateway, &keys, token, known);
            match give_back.await {
                Ok(_) => None,
                Err(error @ (StoreError::Unavailable(_) | StoreError::Indeterminate(_))) => {
                    debug!(%name, %error, "a grant that nobody waits for could not be given back yet");
                    Some(orphan)
                }
                Err(error @ (StoreError::ForeignData { .. } | StoreError::FenceExhausted)) => {
                    warn!(%name, %error, "a grant that nobody waits for is left to its TTL");
                    None
                }
            }
        })
    }
}
