//! Fills a page of a list: scans for locks, step by step, and looks at what was found.

use std::collections::HashSet;

use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{Duration, Instant};

use crate::{
    lock::{LockName, Owner},
    store::{
        StoreError, Unavailability,
        contract::Holder,
        cursor::Cursor,
        page::{HeldLock, ListQuery, Page},
    },
};

use super::{
    SlotTags,
    dispatch::Dispatch,
    gateway::Gateway,
    keys::Keys,
    look::{Look, Looked},
    scan::Step,
    scripts::Scripts,
};

/// What it takes to fill a page.
pub(super) struct Listing<'a> {
    pub(super) dispatch: &'a Dispatch,
    pub(super) scripts: &'a Scripts,
    pub(super) gateway: &'a Gateway,
    pub(super) tags: &'a SlotTags,
    pub(super) query: &'a ListQuery,
}

/// How many keys one step looks at: at least as many as are worth a round trip, at most as many as
/// keep the server from others for a fraction of a millisecond.
const FEWEST: usize = 16;
const MOST: usize = 512;
/// How many steps a page may take, and for how long another may begin.
const STEPS: usize = 32;
const TIME: Duration = Duration::from_millis(250);
/// How many locks are looked at with one batch, and how many batches are under way at once. What is
/// read at one go keeps the server from others for a fraction of a millisecond.
const BATCH: usize = 64;
const BATCHES: usize = 4;
/// How many locks of a batch are looked at with a script at once.
const SCRIPTS: usize = 16;
/// The one server of this topology.
const NODE: u16 = 0;

// === impl Listing ===

impl Listing<'_> {
    /// As many locks as were asked for, and a handful more if the last step has found them: Redis
    /// shows keys that lie together only together.
    pub(super) async fn page(&self) -> Result<Page, StoreError> {
        let start = Instant::now();
        let pattern = Keys::pattern(&self.query.prefix);
        let (mut known, mut scan) = match self.query.cursor {
            Some(Cursor::Redis {
                node: NODE,
                run,
                scan,
            }) => (Some(run), scan),
            // Of another store, or of a server that has gone: the walk begins anew.
            Some(Cursor::Redis { .. } | Cursor::Embedded { .. }) | None => (None, 0),
        };
        let mut locks = Vec::new();
        let mut looked_at = 0;
        for taken in 1.. {
            let wanted = self.query.limit - locks.len();
            let count = count(wanted, locks.len(), looked_at);
            let step = self.dispatch.scan(scan, &pattern, count).await?;
            if known.is_some_and(|run| run != step.run) && scan != 0 {
                // What another run has answered means nothing to this one.
                if taken >= STEPS {
                    let why = "the server changes again and again".to_owned();
                    return Err(Unavailability::Refused(why).into());
                }
                (known, scan) = (None, 0);
                continue;
            }
            known = Some(step.run);
            scan = step.next;
            looked_at += count;
            locks.extend(self.look(step).await?);
            let enough = locks.len() >= self.query.limit;
            if scan == 0 || enough || taken >= STEPS || start.elapsed() >= TIME {
                break;
            }
        }
        let next = (scan != 0).then_some(Cursor::Redis {
            node: NODE,
            run: known.unwrap_or_default(),
            scan,
        });
        Ok(Page { locks, next })
    }

    /// Who holds the locks that a step has found.
    async fn look(&self, step: Step) -> Result<Vec<HeldLock>, StoreError> {
        // A step may find a key twice.
        let names: HashSet<LockName> = step.names.into_iter().collect();
        let mut names = names.into_iter().peekable();
        let mut batches = Vec::new();
        while names.peek().is_some() {
            let batch = names.by_ref().take(BATCH);
            let keys = |name: LockName| Keys::of(&name, self.tags, &self.gateway.id);
            batches.push(batch.map(keys).collect::<Vec<_>>());
        }
        let seen = stream::iter(batches).map(|batch| self.look_at(batch));
        seen.buffer_unordered(BATCHES).try_concat().await
    }

    async fn look_at(&self, batch: Vec<Keys>) -> Result<Vec<HeldLock>, StoreError> {
        let seen = self.dispatch.look(&batch).await?;
        let mut shown = Vec::new();
        let mut unclear = Vec::new();
        for (keys, Looked { look, waiters }) in batch.into_iter().zip(seen) {
            match look {
                Look::Lease(lease) => {
                    let holder = Some(Holder::Lease(lease));
                    shown.extend(self.shown(&keys, holder, waiters));
                }
                Look::Nobody => {}
                Look::Unclear => unclear.push((keys, waiters)),
            }
        }
        let closer = stream::iter(unclear).map(|(keys, waiters)| self.look_closer(keys, waiters));
        let mut closer = closer.buffer_unordered(SCRIPTS);
        while let Some(lock) = closer.try_next().await? {
            shown.extend(lock);
        }
        Ok(shown)
    }

    /// Looks at everything about a lock at one instant.
    async fn look_closer(&self, keys: Keys, waiters: u64) -> Result<Option<HeldLock>, StoreError> {
        let holder = self.scripts.list(self.dispatch, &keys).await?.holder();
        Ok(self.shown(&keys, holder, waiters))
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

/// How many keys to look at for as many locks as are wanted, going by those that were found among
/// the keys so far.
fn count(wanted: usize, found: usize, looked_at: usize) -> usize {
    let expected = if looked_at == 0 {
        wanted
    } else {
        wanted.saturating_mul(looked_at) / found.max(1)
    };
    expected.clamp(FEWEST, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_at_as_many_keys_as_it_takes_and_no_more_than_may_be() {
        assert_eq!(count(100, 0, 0), 100);
        assert_eq!(count(50, 50, 100), 100);
        assert_eq!(count(1, 99, 200), FEWEST);
        assert_eq!(count(100, 0, 100), MOST);
        assert_eq!(count(1_000, 0, 0), MOST);
    }
}
