//! Keeps the queues moving that somebody stands in here: ends of leases, grants that nobody waits
//! for any more, messages, and the rounds that find what all of these have missed.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::{sync::mpsc, time::Duration};
use tracing::{debug, warn};

use crate::{
    lifecycle::Lifecycle,
    lock::{LockName, TokenHash},
    store::{Partition, StoreError},
};

use super::{
    super::{
        Slot,
        client::dispatch::on_each,
        context::RedisContext,
        gateways::Subscription,
        scripts::{Advance, GrantKnowledge},
    },
    rounds::Rounds,
    timers::{DueEvents, OrphanKind, OrphanedAttempt, TimerActions, run_timers},
};

/// Starts all that goes on by itself, until the program stops or the store is closed.
pub(crate) fn start(
    context: &Arc<RedisContext>,
    orphans: mpsc::Receiver<OrphanedAttempt>,
    lifecycle: &Lifecycle,
) {
    let here = Arc::clone(context);
    lifecycle.spawn_until(&context.closing, async move {
        let rounds = |shard| Rounds::new(Arc::clone(&here), shard).go();
        on_each(&here.dispatch, |shard| Box::pin(rounds(shard))).await;
    });
    let subscription = Subscription {
        id: context.gateway.id.clone(),
        channels: context.gateway.channels.clone(),
        news_wanted: Arc::clone(&context.gateway.news_wanted),
        dispatch: Arc::clone(&context.dispatch),
    };
    let here = Arc::clone(context);
    let listening = subscription.listen(move |heard| here.gateway.ingest_heard(heard));
    lifecycle.spawn_until(&context.closing, listening);
    let here = Arc::clone(context);
    lifecycle.spawn_until(&context.closing, async move {
        let due = DueEvents {
            ends: &here.gateway.timers,
            kept: &here.gateway.kept,
            orphans,
        };
        run_timers(due, &*here).await;
    });
}

// === impl RedisContext ===

impl TimerActions for RedisContext {
    fn partition(&self, name: &LockName) -> Partition {
        self.dispatch.topology.partition(Slot::of_name(name))
    }

    /// Passes a lock on if its lease has ended. Nobody may wait here any more: those who wait elsewhere
    /// may not know when it ends.
    fn advance(&self, name: LockName) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let awaited = self.gateway.parking.has_waiters(&name);
            match self.lock(self.keys(&name)).advance().await {
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
            match self.lock(self.keys(&name)).lapse(&token).await {
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
            let known = match *kind {
                OrphanKind::Grant(fence) => GrantKnowledge::Undelivered(fence),
                OrphanKind::Departed(fence, keeper) => GrantKnowledge::Departed(fence, keeper),
            };
            match self.lock(self.keys(name)).give_back(token, known).await {
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
