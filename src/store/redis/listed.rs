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
    list::Listing,
    look::{Look, Looked},
    reading::Patience,
    shard::Shard,
};

/// How many locks are looked at with one batch, and how many batches are under way at once. What is
/// read at one go keeps the server from others for a fraction of a millisecond.
const BATCH: usize = 64;
const BATCHES: usize = 4;
/// How many locks of a batch are looked at with a script at once.
const SCRIPTS: usize = 16;

// === impl Listing ===

impl Listing<'_> {
    /// Who holds the locks that were found on a server.
    pub(super) async fn look(
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
        let seen = stream::iter(batches).map(|batch| self.look_at(shard, batch));
        seen.buffer_unordered(BATCHES).try_concat().await
    }

    async fn look_at(
        &self,
        shard: &Arc<Shard>,
        batch: Vec<Keys>,
    ) -> Result<Vec<HeldLock>, StoreError> {
        let seen = self.dispatch.look(shard, &batch).await?;
        let mut shown = Vec::new();
        let mut unclear = Vec::new();
        for (keys, Looked { look, waiters }) in batch.into_iter().zip(seen) {
            match look {
                Look::Lease(lease) => {
                    let waiters = waiters.unwrap_or_default();
                    let lock = self.shown(&keys, Some(Holder::Lease(lease)), waiters);
                    shown.extend(lock.map(|lock| (keys, lock)));
                }
                Look::Unclear => unclear.push((keys, waiters)),
            }
        }
        let closer = stream::iter(unclear).map(|(keys, waiters)| self.look_closer(keys, waiters));
        let mut closer = closer.buffer_unordered(SCRIPTS);
        while let Some(lock) = closer.try_next().await? {
            shown.extend(lock);
        }
        let counted = stream::iter(shown).map(|(keys, lock)| self.counted(keys, lock));
        counted.buffer_unordered(SCRIPTS).try_collect().await
    }

    /// Looks at everything about a lock at one instant.
    async fn look_closer(
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
        let lock = self.shown(&keys, holder, waiters);
        Ok(lock.map(|lock| (keys, lock)))
    }

    /// The same lock, without those in its queue whose time is over. Where nobody is, nothing is asked.
    async fn counted(&self, keys: Keys, mut lock: HeldLock) -> Result<HeldLock, StoreError> {
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
        let mut patience = Patience::new();
        loop {
            match self.dispatch.plain(keys.slot(), &command).await {
                Ok(Value::Int(count)) => return Ok(count.unsigned_abs()),
                // What is of another type has nobody in it.
                Ok(_) | Err(Failure::WrongType) => return Ok(0),
                Err(failure) => patience.bear(failure).await?,
            }
        }
    }

    /// The lock as it is shown, if it is held and wanted.
    fn shown(&self, keys: &Keys, holder: Option<Holder>, waiters: u64) -> Option<HeldLock> {
        self.gateway.floors.saw(keys.slot(), holder.as_ref());
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
