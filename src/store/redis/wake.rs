//! Keeps the queues moving that somebody stands in here: ends of leases, grants that nobody waits
//! for any more, messages, and the rounds that find what all of these have missed.

use std::{collections::HashSet, sync::Arc};

use futures_util::future::BoxFuture;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    lifecycle::Lifecycle,
    lock::{LockName, TokenHash},
};

use super::{
    SlotTags,
    acting::{Deeds, Due, act},
    dispatch::Dispatch,
    gateway::{Gateway, Orphan},
    keys::Keys,
    places::Places,
    rounds::Rounds,
    scripts::{Advance, Knowledge, Scripts},
    shard::Shard,
    shard::on_each,
    subscription::Subscription,
};

/// What it takes to act on a queue.
#[derive(Clone)]
pub(super) struct Wake {
    pub(super) gateway: Arc<Gateway>,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) tags: Arc<SlotTags>,
}

// === impl Wake ===

impl Wake {
    /// Starts all that goes on by itself, until the program stops or the store is closed.
    pub(super) fn start(
        self,
        orphans: mpsc::Receiver<Orphan>,
        lifecycle: &Lifecycle,
        closing: &CancellationToken,
    ) {
        let (dispatch, here) = (Arc::clone(&self.dispatch), self.clone());
        let rounds = async move {
            on_each(&dispatch, |shard| Box::pin(here.rounds(shard).go())).await;
        };
        let subscription = Subscription {
            gateway: Arc::clone(&self.gateway),
            dispatch: Arc::clone(&self.dispatch),
        };
        let all: [BoxFuture<'static, ()>; 3] = [
            Box::pin(rounds),
            Box::pin(subscription.listen()),
            Box::pin(self.act(orphans)),
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
            places: Places::default(),
            last_shown: None,
            run_id: None,
            kept: (Instant::now(), HashSet::new()),
        }
    }

    /// Acts on what falls due.
    async fn act(self, orphans: mpsc::Receiver<Orphan>) {
        let due = Due {
            ends: &self.gateway.timers,
            kept: &self.gateway.kept,
            orphans,
        };
        act(due, &self).await;
    }

    /// Passes a lock on if its lease has ended. Nobody may wait here any more: those who wait elsewhere
    /// may not know when it ends.
    async fn pass_on(&self, name: LockName) {
        let awaited = self.gateway.parking.awaits(&name);
        let keys = Keys::of(&name, &self.tags, &self.gateway.id);
        let advance = self.scripts.advance(&self.dispatch, &self.gateway, &keys);
        match advance.await {
            Ok(Advance::Held(Some(left))) => self.gateway.expect_end(&name, left),
            // Somebody waits here, and the store knows of nobody.
            Ok(Advance::Idle) if awaited => {
                self.gateway.parking.forget(|waited| *waited == name);
            }
            // The next round looks again, if anybody waits.
            Ok(Advance::Held(None) | Advance::Passed | Advance::Idle) => {}
            Err(error) => debug!(%name, %error, "the next round looks again"),
        }
    }

    /// Gives up a place that was kept for a request which has not come. If that fails it counts for
    /// nothing either, but among those who wait until its turn comes.
    async fn give_up(&self, name: LockName, token: TokenHash) {
        let keys = Keys::of(&name, &self.tags, &self.gateway.id);
        if let Err(error) = self.scripts.lapse(&self.dispatch, &keys, &token).await {
            debug!(%name, %error, "a place that is kept for nobody stands until its turn comes");
        }
    }

    /// Gives back a grant that nobody waits for; if that fails, the TTL ends it.
    async fn take_back(&self, orphan: Orphan) {
        let keys = Keys::of(&orphan.name, &self.tags, &self.gateway.id);
        let (dispatch, known) = (&self.dispatch, Knowledge::Unheard(orphan.fence));
        let give_back =
            self.scripts
                .give_back(dispatch, &self.gateway, &keys, &orphan.token, known);
        if let Err(error) = give_back.await {
            debug!(name = %orphan.name, %error, "a grant that nobody waits for ends with its TTL");
        }
    }
}

impl Deeds for Wake {
    fn advance(&self, name: LockName) -> BoxFuture<'_, ()> {
        Box::pin(self.pass_on(name))
    }

    fn lapse(&self, name: LockName, token: TokenHash) -> BoxFuture<'_, ()> {
        Box::pin(self.give_up(name, token))
    }

    fn give_back(&self, orphan: Orphan) -> BoxFuture<'_, ()> {
        Box::pin(self.take_back(orphan))
    }
}
