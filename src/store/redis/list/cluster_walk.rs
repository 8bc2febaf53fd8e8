//! Fills a page of a list with the locks of a cluster, slot by slot.
//!
//! A slot has its place in the walk whichever server has it, so a slot that moves while somebody walks
//! is come by once, and no lock in it is missed. Within a slot locks come in the order of a hash, so that
//! a page may end in the middle of one.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::time::{Duration, Instant};

use crate::{
    lock::LockName,
    store::{
        StoreError,
        contract::{HeldLock, Page},
        cursor::Cursor,
    },
};

use super::{
    super::{
        Slot,
        client::{cluster::Visited, shard::Shard},
    },
    page::RedisListing,
};

/// A lock that was found.
struct Found {
    slot: Slot,
    /// Its place in the slot.
    position: u64,
    shard: Arc<Shard>,
    name: LockName,
}

/// How many slots the first step looks into, and at most how many one may.
const FIRST: usize = 16;
const MOST: usize = 1_024;
/// How many keys one step should come upon at most, going by those of the one before.
const KEYS: usize = 8_192;
/// By how much more slots the next step looks into if nothing was found.
const FASTER: usize = 4;
/// How many steps a page may take, and for how long another may begin: all slots are come by in less,
/// so that a list of nothing is one page.
const STEPS: usize = 32;
const TIME: Duration = Duration::from_secs(2);

// === impl RedisListing ===

impl RedisListing<'_> {
    /// As many locks as were asked for, at most.
    pub(crate) async fn walk(&self) -> Result<Page, StoreError> {
        let start = Instant::now();
        let (mut slot, mut after) = match self.query.cursor {
            Some(Cursor::Cluster { slot, after }) if usize::from(slot) < Slot::COUNT => {
                (usize::from(slot), after)
            }
            // Made up, or of another store: the walk begins anew.
            Some(_) | None => (0, 0),
        };
        let mut locks: Vec<HeldLock> = Vec::new();
        let mut many = FIRST;
        for _ in 0..STEPS {
            let until = (slot + many).min(Slot::COUNT);
            let visited = self.dispatch.visit(slot..until, self.tags).await?;
            let keys: usize = visited.iter().map(|visited| visited.keys).sum();
            let found = self.wanted(visited, (slot, after));
            let count = found.len();
            let stopped = self.add_held(found, &mut locks).await?;
            if let Some(stopped) = stopped {
                return Ok(Page {
                    locks,
                    next: Some(stopped),
                });
            }
            many = next(until - slot, count, keys, self.query.limit - locks.len());
            (slot, after) = (until, 0);
            if slot == Slot::COUNT || start.elapsed() >= TIME {
                break;
            }
        }
        let next = u16::try_from(slot).ok().filter(|_| slot < Slot::COUNT);
        let next = next.map(|slot| Cursor::Cluster { slot, after });
        Ok(Page { locks, next })
    }

    /// The locks behind a place of which the names are asked for, in the order of the walk.
    fn wanted(&self, visited: Vec<Visited>, behind: (usize, u64)) -> Vec<Found> {
        let mut found = Vec::new();
        for Visited {
            slot, shard, names, ..
        } in visited
        {
            let wanted = names
                .into_iter()
                .filter(|name| name.as_str().starts_with(self.query.filter.prefix.as_str()));
            found.extend(wanted.map(|name| Found {
                slot,
                position: position(&name),
                shard: Arc::clone(&shard),
                name,
            }));
        }
        found.retain(|it| (it.slot.index(), it.position) > behind);
        found.sort_by_key(|it| (it.slot.index(), it.position));
        // A key that is on its way may be found twice.
        found.dedup_by(|one, other| one.name == other.name);
        found
    }

    /// Looks at locks until there are as many as were asked for. Where it stopped, if it did.
    async fn add_held(
        &self,
        found: Vec<Found>,
        locks: &mut Vec<HeldLock>,
    ) -> Result<Option<Cursor>, StoreError> {
        let mut found = found.into_iter().peekable();
        while found.peek().is_some() {
            let wanted = self.query.limit - locks.len();
            let some: Vec<Found> = found.by_ref().take(wanted).collect();
            let last = some.last().map(|it| (it.slot, it.position));
            let mut of_each: Vec<(Arc<Shard>, Vec<LockName>)> = Vec::new();
            for Found { shard, name, .. } in some {
                match of_each.iter_mut().find(|(it, _)| Arc::ptr_eq(it, &shard)) {
                    Some((_, names)) => names.push(name),
                    None => of_each.push((shard, vec![name])),
                }
            }
            for (shard, names) in of_each {
                locks.extend(self.holders(&shard, names).await?);
            }
            if let Some((slot, after)) = last
                && locks.len() >= self.query.limit
            {
                let slot = u16::try_from(slot.index()).expect("a slot is a number of 14 bits");
                return Ok(Some(Cursor::Cluster { slot, after }));
            }
        }
        Ok(None)
    }
}

/// The place of a lock in its slot. Never 0, which is before all of them.
fn position(name: &LockName) -> u64 {
    let digest: [u8; 32] = Sha256::digest(name.as_str()).into();
    let (first, _) = digest.split_first_chunk().expect("a digest is longer");
    u64::from_be_bytes(*first).max(1)
}

/// How many slots to look into for as many locks as are wanted, going by what was found in so many.
fn next(slots: usize, found: usize, keys: usize, wanted: usize) -> usize {
    let enough = match found {
        0 => slots.saturating_mul(FASTER),
        found => wanted.saturating_mul(slots).div_ceil(found),
    };
    let bearable = match keys {
        0 => MOST,
        keys => KEYS.saturating_mul(slots) / keys,
    };
    enough.min(bearable).clamp(1, MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_into_as_many_slots_as_it_takes_and_no_more_than_may_be() {
        assert_eq!(next(16, 0, 0, 100), 64);
        assert_eq!(next(512, 0, 0, 100), MOST);
        assert_eq!(next(16, 96, 300, 4), 1);
        assert_eq!(next(16, 8, 20, 100), 200);
        // Many keys, of which few are asked for.
        assert_eq!(next(16, 1, 3_200, 100), 40);
        assert_eq!(next(16, 0, 1_000_000, 100), 1);
    }

    #[test]
    fn a_lock_has_the_same_place_everywhere() {
        let name = |text| LockName::new(text).unwrap();
        assert_eq!(position(&name("a")), 0xca97_8112_ca1b_bdca);
        assert_ne!(position(&name("a")), position(&name("b")));
    }
}
