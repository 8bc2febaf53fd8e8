//! Looks at locks that were found for a list: who holds them, and how many wait.

use std::{collections::HashSet, sync::Arc};

use bb8_redis::redis::{Cmd, Value};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::Duration;

use crate::{
    lock::{LockName, Owner},
    store::{StoreError, Unavailability, contract::Holder, page::HeldLock},
};

use super::{
    failure::Failure,
    keys::Keys,
    list::RedisListing,
    read_locks::{LockRead, LockState},
    retry::RetryPolicy,
    shard::Shard,
};

/// How many locks are looked at with one batch, and how many batches are under way at once. What is
/// read at one go keeps the server from others for a fraction of a millisecond.
const BATCH: usize = 64;
const BATCHES: usize = 4;
/// How many locks of a batch are looked at with a script at once.
const SCRIPTS: usize = 16;

// === impl RedisListing ===

impl RedisListing<'_> {
    /// Who holds the locks that were found on a server.
    pub(super) async fn holders(
        &self,
        shard: &Arc<Shard>,
        names: Vec<LockName>,
    ) -> Result<Vec<HeldLock>, StoreError> {
        // A step may find a key twice.
        let names: HashSet<LockName> = names.into_iter().collect();
        let mut names = names.into_iter().peekable();
        let mut batches = Vec::new();
        while names.peek().is_some() {
            let batch = names.by_ref().take(BATCH);
            let keys = |name: LockName| Keys::of(&name, self.tags, &self.gateway.id);
            batches.push(batch.map(keys).collect::<Vec<_>>());
        }
        let seen = stream::iter(batches).map(|batch| self.holders_of_batch(shard, batch));
        seen.buffer_unordered(BATCHES).try_concat().await
    }

    async fn holders_of_batch(
        &self,
        shard: &Arc<Shard>,
        batch: Vec<Keys>,
    ) -> Result<Vec<HeldLock>, StoreError> {
        let seen = self.dispatch.read_locks(shard, &batch).await?;
        let mut found = Vec::new();
        let mut unclear = Vec::new();
        for (keys, LockRead { state, waiters }) in batch.into_iter().zip(seen) {
            match state {
                LockState::Lease(lease) => {
                    let waiters = waiters.unwrap_or_default();
                    let lock = self.to_held_lock(&keys, Some(Holder::Lease(lease)), waiters);
                    found.extend(lock.map(|lock| (keys, lock)));
                }
                LockState::Unclear => unclear.push((keys, waiters)),
            }
        }
        let closer = stream::iter(unclear).map(|(keys, waiters)| self.inspect_one(keys, waiters));
        let mut closer = closer.buffer_unordered(SCRIPTS);
        while let Some(lock) = closer.try_next().await? {
            found.extend(lock);
        }
        let counted = stream::iter(found).map(|(keys, lock)| self.with_live_waiters(keys, lock));
        counted.buffer_unordered(SCRIPTS).try_collect().await
    }

    /// Looks at everything about a lock at one instant.
    async fn inspect_one(
        &self,
        keys: Keys,
        waiters: Option<u64>,
    ) -> Result<Option<(Keys, HeldLock)>, StoreError> {
        let holder = match self.scripts.list(self.dispatch, &keys).await {
            Ok(seen) => seen.holder(),
            // Where a slot is being moved, what belongs together may be in two places, or be missing.
            Err(StoreError::Unavailable(why)) if self.dispatch.topology.is_cluster() => {
                self.without_record(&keys, why).await?
            }
            Err(error) => return Err(error),
        };
        let waiters = match waiters {
            Some(waiters) => waiters,
            None => self.waiters(&keys).await?,
        };
        let lock = self.to_held_lock(&keys, holder, waiters);
        Ok(lock.map(|lock| (keys, lock)))
    }

    /// The same lock, without those in its queue whose time is over. Where nobody is, nothing is asked.
    async fn with_live_waiters(
        &self,
        keys: Keys,
        mut lock: HeldLock,
    ) -> Result<HeldLock, StoreError> {
        if lock.waiters == 0 {
            return Ok(lock);
        }
        match self.scripts.count(self.dispatch, &keys).await {
            Ok(waiters) => lock.waiters = waiters,
            // Where a slot is being moved the queue may be in two places: all in it are counted.
            Err(StoreError::Unavailable(_)) if self.dispatch.topology.is_cluster() => {}
            Err(error) => return Err(error),
        }
        Ok(lock)
    }

    /// Whether somebody holds a lock, for how long, and no more than that.
    async fn without_record(
        &self,
        keys: &Keys,
        why: Unavailability,
    ) -> Result<Option<Holder>, StoreError> {
        let mut command = Cmd::new();
        command.arg("PTTL").arg(keys.lock());
        match self.dispatch.plain(keys.slot(), &command).await {
            Ok(Value::Int(-2)) => Ok(None),
            Ok(Value::Int(left)) => {
                let expires_in = u64::try_from(left).ok().map(Duration::from_millis);
                // What they have written may be in another place already.
                let mark = None;
                Ok(Some(Holder::Foreign { expires_in, mark }))
            }
            _ => Err(why.into()),
        }
    }

    /// How many wait for a lock.
    async fn waiters(&self, keys: &Keys) -> Result<u64, StoreError> {
        let mut command = Cmd::new();
        command.arg("LLEN").arg(keys.wait());
        let mut retry = RetryPolicy::new();
        loop {
            match self.dispatch.plain(keys.slot(), &command).await {
                Ok(Value::Int(count)) => return Ok(count.unsigned_abs()),
                // What is of another type has nobody in it.
                Ok(_) | Err(Failure::WrongType) => return Ok(0),
                Err(failure) => retry.pause_or_fail(failure).await?,
            }
        }
    }

    /// The lock as it is shown, if it is held and wanted.
    fn to_held_lock(&self, keys: &Keys, holder: Option<Holder>, waiters: u64) -> Option<HeldLock> {
        self.gateway
            .floors
            .raise_to_holder(keys.slot(), holder.as_ref());
        let holder = holder.filter(|holder| {
            self.query.owner.is_none() || self.query.owner.as_ref() == owner(holder)
        })?;
        let name = keys.name().clone();
        Some(HeldLock {
            name,
            holder,
            waiters,
        })
    }
}

fn owner(holder: &Holder) -> Option<&Owner> {
    match holder {
        Holder::Lease(lease) => lease.owner.as_ref(),
        Holder::Foreign { .. } => None,
    }
}
