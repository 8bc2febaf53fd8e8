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
    SlotTags, dispatch::Dispatch, gateway::Gateway, keys::Keys, scan::Step, scripts::Scripts,
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
/// How many looks are under way at once: they travel together, and leave room for others.
const LOOKS: usize = 64;
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
        let looks = stream::iter(names).map(|name| self.look_at(name));
        let seen = looks.buffer_unordered(LOOKS);
        seen.try_filter_map(async |lock| Ok(lock))
            .try_collect()
            .await
    }

    async fn look_at(&self, name: LockName) -> Result<Option<HeldLock>, StoreError> {
        let keys = Keys::of(&name, self.tags, &self.gateway.id);
        let holder = self.scripts.list(self.dispatch, &keys).await?.holder();
        self.gateway.floors.saw(keys.slot(), holder.as_ref());
        let wanted = |holder: &Holder| {
            self.query.owner.is_none() || self.query.owner.as_ref() == owner(holder)
        };
        let holder = holder.filter(wanted);
        Ok(holder.map(|holder| HeldLock { name, holder }))
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
