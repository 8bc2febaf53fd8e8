//! Answers a grant when enough replicas have it, and takes it back if they do not in time.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::info;

use crate::{
    lock::{HeldLease, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Acquisition, Attempt, GiveBack, Leaving},
    },
};

use super::{
    Slot, SlotTags,
    client::{dispatch::Dispatch, marker_connection::MarkerConnection, run::RunId, shard::Shard},
    health::replicas::{marker_connection, too_few},
    keys::Keys,
    queue::gateway::RedisGateway,
    scripts::{GrantKnowledge, Scripts},
};

/// What it takes to keep a grant back.
pub(crate) struct Replicated {
    pub(crate) tags: Arc<SlotTags>,
    pub(crate) dispatch: Arc<Dispatch>,
    pub(crate) scripts: Arc<Scripts>,
    pub(crate) gateway: Arc<RedisGateway>,
}

/// How it will be found out who has a grant that is made from now on.
pub(crate) struct ReplicaCheck {
    shard: Arc<Shard>,
    markers: Arc<MarkerConnection>,
    /// Of which slot, and what tells it apart when that goes to another server.
    slot: Slot,
    moves: u32,
    /// Takes a grant back, in what is left of the time of its request.
    dispatch: Dispatch,
}

// === impl Replicated ===

impl Replicated {
    /// Before a grant is asked for: how it will be found out who has it.
    pub(crate) async fn prepare(
        &self,
        dispatch: &Dispatch,
        slot: Slot,
    ) -> Result<Option<ReplicaCheck>, Unavailability> {
        if !self.gateway.waits_for_replicas {
            return Ok(None);
        }
        // Not before somebody has said who has it: what comes first may be no acquire.
        dispatch.topology.wait_until_known().await;
        let moves = dispatch.topology.moves(slot);
        let shard = dispatch.topology.shard(slot)?;
        let markers = marker_connection(&shard, slot, &self.tags, dispatch.limit()).await?;
        Ok(markers.map(|markers| ReplicaCheck {
            shard,
            markers,
            slot,
            moves,
            dispatch: dispatch.clone(),
        }))
    }

    /// The answer to an acquire, when enough replicas have what it tells of.
    pub(crate) async fn acquisition(
        &self,
        replica_check: Option<ReplicaCheck>,
        keys: &Keys,
        attempt: &Attempt,
        (acquisition, run): (Acquisition, Option<RunId>),
    ) -> Result<Acquisition, StoreError> {
        Ok(match acquisition {
            Acquisition::Granted(lease) => {
                let token = &attempt.token;
                Acquisition::Granted(
                    self.grant(replica_check, keys, token, lease, run.as_ref())
                        .await?,
                )
            }
            Acquisition::Replayed(lease, salt, before) => Acquisition::Replayed(
                self.lease(replica_check, lease, run.as_ref()).await?,
                salt,
                before,
            ),
            Acquisition::Collected(lease, salt, waited) => Acquisition::Collected(
                self.lease(replica_check, lease, run.as_ref()).await?,
                salt,
                waited,
            ),
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
    pub(crate) async fn leave(
        &self,
        keys: &Keys,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let dispatch = self.dispatch.for_one_request();
        let replica_check = self.prepare(&dispatch, keys.slot()).await?;
        let scripts = &self.scripts;
        let left = scripts.leave(&dispatch, &self.gateway, keys, token, keep_for);
        Ok(match left.await? {
            (Leaving::Granted(lease), run) => Leaving::Granted(
                self.grant(replica_check, keys, token, lease, run.as_ref())
                    .await?,
            ),
            (other @ (Leaving::Left(_) | Leaving::Superseded), _) => other,
        })
    }

    /// A grant that was not delivered, as it is when enough replicas have it. Else it is taken back,
    /// so that nothing has happened.
    ///
    /// Where another server has become the master meanwhile it is taken back there: whoever follows the
    /// master finds the lock as if it had never been granted, and no late copy is granted it.
    pub(crate) async fn grant(
        &self,
        replica_check: Option<ReplicaCheck>,
        keys: &Keys,
        token: &TokenHash,
        lease: HeldLease,
        run: Option<&RunId>,
    ) -> Result<HeldLease, StoreError> {
        let Some(replica_check) = replica_check else {
            return Ok(lease);
        };
        let fence = lease.fence;
        let why = match replica_check.on_replicas(lease, run).await {
            Ok(lease) => return Ok(lease),
            Err(why) => why,
        };
        let (scripts, gateway) = (&self.scripts, &self.gateway);
        let known = GrantKnowledge::WaitsForReplicas(fence);
        let returned = scripts.give_back(&replica_check.dispatch, gateway, keys, token, known);
        match returned.await {
            Ok(GiveBack::GivenBack | GiveBack::NothingHeld) => Err(why.into()),
            // Somebody else was answered it under its idempotency key.
            Ok(GiveBack::Kept) => Err(Uncertainty::NotReplicated(why).into()),
            Err(error) => {
                // What is answered says why it was to be taken back.
                let name = keys.name();
                info!(%name, %error, "a grant that too few replicas have could not be taken back");
                Err(Uncertainty::NotReplicated(why).into())
            }
        }
    }

    /// A lease that may have been delivered before, as it is when enough replicas have it.
    async fn lease(
        &self,
        replica_check: Option<ReplicaCheck>,
        lease: HeldLease,
        run: Option<&RunId>,
    ) -> Result<HeldLease, StoreError> {
        let Some(replica_check) = replica_check else {
            return Ok(lease);
        };
        let on_replicas = replica_check.on_replicas(lease, run).await;
        on_replicas.map_err(|why| Uncertainty::NotReplicated(why).into())
    }
}

// === impl ReplicaCheck ===

impl ReplicaCheck {
    /// A lease of which a script has told, as it is when enough replicas have it; or why it cannot be
    /// answered.
    async fn on_replicas(
        &self,
        lease: HeldLease,
        run: Option<&RunId>,
    ) -> Result<HeldLease, Unavailability> {
        let (replicas, topology) = (&self.shard.replicas, &self.dispatch.topology);
        let limit = self.dispatch.limit() - self.dispatch.reserve();
        let had = replicas.have(&self.markers, run, limit).await;
        if topology.moves(self.slot) != self.moves {
            // Another server may have made the grant, and its replicas were not asked.
            return Err(too_few(&self.shard, None));
        }
        had.map_err(|confirmed| too_few(&self.shard, confirmed))?;
        // It has lasted since then.
        let lease = lease.at(Instant::now());
        if lease.expires_in.is_zero() {
            return Err(Unavailability::RanOut);
        }
        Ok(lease)
    }
}
