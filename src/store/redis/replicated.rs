//! Answers a grant when enough replicas have it, and takes it back if they do not in time.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::warn;

use crate::{
    lock::{HeldLease, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Acquisition, Attempt, Check, Health, Leaving},
    },
};

use super::{
    Slot, SlotTags,
    dispatch::Dispatch,
    gateway::Gateway,
    keys::Keys,
    marker_line::MarkerLine,
    run::Told,
    scripts::{Scripts, TakenBack},
    shard::Shard,
};

/// What it takes to keep a grant back.
pub(super) struct Replicated {
    pub(super) tags: Arc<SlotTags>,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) gateway: Arc<Gateway>,
}

/// How it will be found out who has a grant that is made from now on.
pub(super) struct Awaited {
    shard: Arc<Shard>,
    line: Arc<MarkerLine>,
    /// Of which slot, and what tells it apart when that goes to another server.
    slot: Slot,
    moves: u32,
    /// Takes a grant back, in what is left of the time of its request.
    dispatch: Dispatch,
}

// === impl Replicated ===

impl Replicated {
    /// Before a grant is asked for: how it will be found out who has it.
    pub(super) async fn line(
        &self,
        dispatch: &Dispatch,
        slot: Slot,
    ) -> Result<Option<Awaited>, Unavailability> {
        let moves = dispatch.topology.moves(slot);
        let shard = dispatch.topology.shard(slot)?;
        let line = self.line_to(&shard, slot, dispatch.limit()).await?;
        Ok(line.map(|line| Awaited {
            shard,
            line,
            slot,
            moves,
            dispatch: dispatch.clone(),
        }))
    }

    async fn line_to(
        &self,
        shard: &Shard,
        slot: Slot,
        limit: Instant,
    ) -> Result<Option<Arc<MarkerLine>>, Unavailability> {
        let marker = || match shard.node() {
            Some(_one_of_a_cluster) => Keys::marker_in(slot, &self.tags),
            None => Keys::MARKER.to_owned(),
        };
        shard.replicas.line(&shard.pool, marker, limit).await
    }

    /// The answer to an acquire, when enough replicas have what it tells of.
    pub(super) async fn acquisition(
        &self,
        awaited: Option<Awaited>,
        keys: &Keys,
        attempt: &Attempt,
        (acquisition, told): (Acquisition, Told),
    ) -> Result<Acquisition, StoreError> {
        Ok(match acquisition {
            Acquisition::Granted(lease) => {
                let token = &attempt.token;
                Acquisition::Granted(self.grant(awaited, keys, token, lease, &told).await?)
            }
            Acquisition::Replayed(lease, salt, before) => {
                Acquisition::Replayed(self.lease(awaited, lease, &told).await?, salt, before)
            }
            Acquisition::Collected(lease, salt) => {
                Acquisition::Collected(self.lease(awaited, lease, &told).await?, salt)
            }
            other @ (Acquisition::Held(_)
            | Acquisition::Queued(_)
            | Acquisition::Superseded
            | Acquisition::QueueFull
            | Acquisition::IdempotencyMismatch
            | Acquisition::IdempotencyExpired) => other,
        })
    }

    /// Takes an attempt out of the queue. What it was granted in time after all it has when enough replicas
    /// have it.
    pub(super) async fn leave(
        &self,
        keys: &Keys,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let dispatch = self.dispatch.for_one_request();
        let awaited = self.line(&dispatch, keys.slot()).await?;
        let scripts = &self.scripts;
        let left = scripts.leave(&dispatch, &self.gateway, keys, token, keep_for);
        Ok(match left.await? {
            (Leaving::Granted(lease), told) => {
                Leaving::Granted(self.grant(awaited, keys, token, lease, &told).await?)
            }
            (other @ (Leaving::Left(_) | Leaving::Superseded), _) => other,
        })
    }

    /// A grant that nobody has heard of, as it is when enough replicas have it. Else it is taken back,
    /// so that nothing has happened.
    ///
    /// Where another server has become the master meanwhile it is taken back there: whoever follows the
    /// master finds the lock as if it had never been granted, and no late copy is granted it.
    pub(super) async fn grant(
        &self,
        awaited: Option<Awaited>,
        keys: &Keys,
        token: &TokenHash,
        lease: HeldLease,
        told: &Told,
    ) -> Result<HeldLease, StoreError> {
        let Some(awaited) = awaited else {
            return Ok(lease);
        };
        let why = match awaited.on_replicas(lease, told).await {
            Ok(lease) => return Ok(lease),
            Err(why) => why,
        };
        let (scripts, gateway) = (&self.scripts, &self.gateway);
        let returned = scripts.take_back(&awaited.dispatch, gateway, keys, token);
        match returned.await {
            Ok(TakenBack::Ended) => Err(why.into()),
            // Somebody else was answered it under its idempotency key.
            Ok(TakenBack::Kept) => Err(Uncertainty::NotReplicated(why).into()),
            Err(error) => {
                // What is answered says why it was to be taken back.
                let name = keys.name();
                warn!(%name, %error, "a grant that too few replicas have could not be taken back");
                Err(Uncertainty::NotReplicated(why).into())
            }
        }
    }

    /// A lease that somebody may have heard of before, as it is when enough replicas have it.
    async fn lease(
        &self,
        awaited: Option<Awaited>,
        lease: HeldLease,
        told: &Told,
    ) -> Result<HeldLease, StoreError> {
        let Some(awaited) = awaited else {
            return Ok(lease);
        };
        let on_replicas = awaited.on_replicas(lease, told).await;
        on_replicas.map_err(|why| Uncertainty::NotReplicated(why).into())
    }

    /// What readiness says of a server; nothing if replicas are not waited for.
    pub(super) async fn check(&self, shard: &Arc<Shard>) -> Option<Check> {
        let slot = self.dispatch.topology.some_slot(shard);
        let slot = slot.unwrap_or_else(|| Slot::of(Keys::MARKER.as_bytes()));
        let limit = Instant::now() + shard.replicas.longest();
        let line = match self.line_to(shard, slot, limit).await {
            Ok(None) => return None,
            Ok(Some(line)) => line,
            Err(Unavailability::Misconfigured(why)) => {
                return Some(check(Health::Misconfigured(why)));
            }
            Err(why) => return Some(check(Health::Outage(why.to_string()))),
        };
        let limit = Instant::now() + shard.replicas.longest();
        let had = shard.replicas.have(&line, Some(line.run()), limit).await;
        Some(match had {
            Ok(()) => Check {
                note: shard
                    .replicas
                    .confirmed()
                    .map(|count| format!("{count} confirm")),
                ..check(Health::Passing)
            },
            Err(confirmed) => {
                let why = too_few(shard, confirmed);
                check(Health::Outage(why.to_string()))
            }
        })
    }
}

// === impl Awaited ===

impl Awaited {
    /// A lease of which a script has told, as it is when enough replicas have it; or why it cannot be
    /// answered.
    async fn on_replicas(
        &self,
        lease: HeldLease,
        told: &Told,
    ) -> Result<HeldLease, Unavailability> {
        let (replicas, topology) = (&self.shard.replicas, &self.dispatch.topology);
        let limit = self.dispatch.limit() - self.dispatch.reserve();
        let had = replicas.have(&self.line, told.by.as_ref(), limit).await;
        if topology.moves(self.slot) != self.moves {
            // Another server may have made the grant, and its replicas were not asked.
            return Err(too_few(&self.shard, None));
        }
        had.map_err(|confirmed| too_few(&self.shard, confirmed))?;
        // It has lasted since then.
        lease.later(told.at.elapsed()).ok_or(Unavailability::RanOut)
    }
}

fn too_few(shard: &Shard, confirmed: Option<u32>) -> Unavailability {
    let wanted = shard.replicas.wanted();
    Unavailability::TooFewReplicas { wanted, confirmed }
}

fn check(health: Health) -> Check {
    Check {
        name: "replicas",
        health,
        note: None,
    }
}
