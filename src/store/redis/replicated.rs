//! Answers a grant to its caller when enough replicas have the grant, and releases the grant if they do not have it in
//! time.

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

/// State for the check whether enough replicas have a grant. The state is taken before the grant is made.
struct ReplicaCheck {
    shard: Arc<Shard>,
    markers: Arc<MarkerConnection>,
    /// Counter that differs later if the slot of the lock has moved to another server.
    moves: u32,
}

// === impl LockScripts ===

impl LockScripts<'_> {
    /// Prepares the check of replicas, before a grant is requested; `None` if grants do not wait for replicas.
    async fn replica_check(&self) -> Result<Option<ReplicaCheck>, Unavailability> {
        let context = self.context;
        if !context.gateway.waits_for_replicas {
            return Ok(None);
        }
        let (topology, slot) = (&context.dispatch.topology, self.keys.slot());
        // The first request at a new gateway may be a confirmation, which has not waited until a server is known for
        // the slot.
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

    /// Acquires the lock, and answers when enough replicas have the lease in the answer.
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

    /// Confirms a provisional grant, and answers the grant when enough replicas have it.
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

    /// Takes an attempt out of the queue. If the attempt was granted the lock in the last moment, the grant is answered
    /// when enough replicas have it.
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

    /// Waits until enough replicas have an undelivered grant, and answers the lease as it is then. If they do not have
    /// it in time, the grant is taken back, so that nothing has happened.
    ///
    /// If another server has become the master meanwhile, the grant is taken back there: clients of the new master find
    /// the lock as if it had never been granted, and no late copy of the acquire is granted the lock.
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
            // Another request was answered the lease under the idempotency key, so the lease stays.
            Ok(GiveBack::Kept) => Err(Uncertainty::NotReplicated(why).into()),
            Err(error) => {
                // The caller is answered the reason for which the grant had to be released; the error of the release is
                // only logged.
                let name = self.keys.name();
                info!(%name, %error, "a grant that too few replicas have could not be taken back");
                Err(Uncertainty::NotReplicated(why).into())
            }
        }
    }

    /// Waits until enough replicas have a lease that may have been delivered before, and answers the lease as it is
    /// then. The lease is not taken back.
    async fn replayed(
        &self,
        check: Option<ReplicaCheck>,
        lease: HeldLease,
        run: Option<&RunId>,
    ) -> Result<HeldLease, StoreError> {
        let on_replicas = self.on_replicas(check, lease, run).await;
        on_replicas.map_err(|why| Uncertainty::NotReplicated(why).into())
    }

    /// Waits until enough replicas have a lease, and answers the lease as it is then, or why it cannot be answered.
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
            // Another server may have made the grant, and this check did not ask its replicas.
            return Err(shard.replicas.too_few(None));
        }
        had.map_err(|confirmed| shard.replicas.too_few(confirmed))?;
        // Time has passed while the replicas were checked.
        let lease = lease.at(Instant::now());
        if lease.expires_in.is_zero() {
            return Err(Unavailability::RanOut);
        }
        Ok(lease)
    }
}
