//! Answers a grant when enough replicas have it, and takes it back if they do not in time.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::info;

use crate::{
    lock::{HeldLease, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Acquisition, Attempt, Confirmation, GiveBack, Leaving},
    },
};

use super::{
    client::{identity::RunId, replicas::MarkerConnection, shard::Shard},
    scripts::{GrantKnowledge, LockScripts},
};

/// How it will be found out who has a grant that is made from now on.
struct ReplicaCheck {
    shard: Arc<Shard>,
    markers: Arc<MarkerConnection>,
    /// Tells it apart when the slot of the lock goes to another server.
    moves: u32,
}

// === impl LockScripts ===

impl LockScripts<'_> {
    /// Before a grant is asked for: how it will be found out who has it.
    async fn replica_check(&self) -> Result<Option<ReplicaCheck>, Unavailability> {
        let context = self.context;
        if !context.gateway.waits_for_replicas {
            return Ok(None);
        }
        let (topology, slot) = (&context.dispatch.topology, self.keys.slot());
        // Not before somebody has said who has it: what comes first may be no acquire.
        topology.wait_until_known().await;
        let moves = topology.moves(slot);
        let shard = topology.shard(slot)?;
        let markers = shard
            .marker_connection(slot, &context.tags, self.limit)
            .await?;
        Ok(markers.map(|markers| ReplicaCheck {
            shard,
            markers,
            moves,
        }))
    }

    /// The answer to an acquire, when enough replicas have what it tells of.
    pub(super) async fn acquire_replicated(
        &self,
        attempt: &Attempt,
    ) -> Result<Acquisition, StoreError> {
        let check = self.replica_check().await?;
        let (acquisition, run) = self.acquire(attempt).await?;
        let run = run.as_ref();
        Ok(match acquisition {
            Acquisition::Granted(lease) => {
                Acquisition::Granted(self.grant(check, &attempt.token, lease, run).await?)
            }
            Acquisition::Replayed(lease, salt) => {
                Acquisition::Replayed(self.replayed(check, lease, run).await?, salt)
            }
            Acquisition::Collected(lease, salt, waited) => {
                Acquisition::Collected(self.replayed(check, lease, run).await?, salt, waited)
            }
            other => other,
        })
    }

    /// Confirms a grant, and answers it when enough replicas have it.
    pub(super) async fn confirm_replicated(
        &self,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let check = self.replica_check().await?;
        Ok(match self.confirm(token).await? {
            (Confirmation::Confirmed(lease), run) => {
                Confirmation::Confirmed(self.grant(check, token, lease, run.as_ref()).await?)
            }
            (other, _) => other,
        })
    }

    /// Takes an attempt out of the queue. What it was granted in time after all it has when enough replicas
    /// have it.
    pub(super) async fn leave_replicated(
        &self,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let check = self.replica_check().await?;
        Ok(match self.leave(token, keep_for).await? {
            (Leaving::Granted(lease), run) => {
                Leaving::Granted(self.grant(check, token, lease, run.as_ref()).await?)
            }
            (other, _) => other,
        })
    }

    /// A grant that was not delivered, as it is when enough replicas have it. Else it is taken back,
    /// so that nothing has happened.
    ///
    /// Where another server has become the master meanwhile it is taken back there: whoever follows the
    /// master finds the lock as if it had never been granted, and no late copy is granted it.
    async fn grant(
        &self,
        check: Option<ReplicaCheck>,
        token: &TokenHash,
        lease: HeldLease,
        run: Option<&RunId>,
    ) -> Result<HeldLease, StoreError> {
        let fence = lease.fence;
        let why = match self.on_replicas(check, lease, run).await {
            Ok(lease) => return Ok(lease),
            Err(why) => why,
        };
        let known = GrantKnowledge::WaitsForReplicas(fence);
        match self.give_back(token, known).await {
            Ok(GiveBack::GivenBack | GiveBack::NothingHeld) => Err(why.into()),
            // Somebody else was answered it under its idempotency key.
            Ok(GiveBack::Kept) => Err(Uncertainty::NotReplicated(why).into()),
            Err(error) => {
                // What is answered says why it was to be taken back.
                let name = self.keys.name();
                info!(%name, %error, "a grant that too few replicas have could not be taken back");
                Err(Uncertainty::NotReplicated(why).into())
            }
        }
    }

    /// A lease that may have been delivered before, as it is when enough replicas have it.
    async fn replayed(
        &self,
        check: Option<ReplicaCheck>,
        lease: HeldLease,
        run: Option<&RunId>,
    ) -> Result<HeldLease, StoreError> {
        let on_replicas = self.on_replicas(check, lease, run).await;
        on_replicas.map_err(|why| Uncertainty::NotReplicated(why).into())
    }

    /// A lease of which a script has told, as it is when enough replicas have it; or why it cannot be
    /// answered.
    async fn on_replicas(
        &self,
        check: Option<ReplicaCheck>,
        lease: HeldLease,
        run: Option<&RunId>,
    ) -> Result<HeldLease, Unavailability> {
        let Some(ReplicaCheck {
            shard,
            markers,
            moves,
        }) = check
        else {
            return Ok(lease);
        };
        let dispatch = &self.context.dispatch;
        let limit = self.limit - dispatch.reserve();
        let had = shard.replicas.have(&markers, run, limit).await;
        if dispatch.topology.moves(self.keys.slot()) != moves {
            // Another server may have made the grant, and its replicas were not asked.
            return Err(shard.replicas.too_few(None));
        }
        had.map_err(|confirmed| shard.replicas.too_few(confirmed))?;
        // It has lasted since then.
        let lease = lease.at(Instant::now());
        if lease.expires_in.is_zero() {
            return Err(Unavailability::RanOut);
        }
        Ok(lease)
    }
}
