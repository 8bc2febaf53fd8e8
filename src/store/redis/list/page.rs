//! Fills a page of a list: scans for locks, step by step.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::store::{
    StoreError, Unavailability,
    contract::{ListQuery, Page},
    cursor::{Cursor, Scanned, Split},
};

use super::super::{
    client::{
        scan::{count, leave_out, narrower, split},
        shard::Shard,
    },
    context::RedisContext,
    keys::Keys,
};

/// What it takes to fill a page.
pub(crate) struct RedisListing<'a> {
    pub(crate) context: &'a RedisContext,
    pub(crate) query: &'a ListQuery,
}

/// How many steps a page may take, and for how long another may begin.
const STEPS: usize = 32;
const TIME: Duration = Duration::from_millis(250);
/// Which part of a page may be left empty: to fill it might take a step for each lock.
const SPARE: usize = 8;

/// Where a walk through the locks of all servers is.
struct ScanWalk {
    /// Which server of [`Topology::shards_by_slot`](super::super::client::topology::Topology::shards_by_slot).
    node: u16,
    /// The run of that server, if it is known.
    run: Option<u32>,
    scan: u64,
    /// What was shown of what lies there.
    split: Option<Split>,
}

// === impl RedisListing ===

impl RedisListing<'_> {
    /// As many locks as were asked for, or a few less.
    pub(crate) async fn page(&self) -> Result<Page, StoreError> {
        let topology = &self.context.dispatch.topology;
        topology.wait_until_known().await;
        // All servers have room for as many; this one stands for them.
        let shard = topology.pubsub_shard()?;
        let _room = shard.asking.within(Duration::ZERO).await?;
        self.scan(&topology.shards_by_slot()?).await
    }

    /// Scans one server after the other. A lock whose slot moves from one server to another meanwhile may be missed, or
    /// be found twice.
    async fn scan(&self, shards: &[Arc<Shard>]) -> Result<Page, StoreError> {
        let start = Instant::now();
        let pattern = Keys::pattern(&self.query.filter.prefix);
        let mut walk = ScanWalk::from(self.query.cursor);
        if usize::from(walk.node) >= shards.len() {
            walk.begin(0);
        }
        let mut locks = Vec::new();
        let (mut looked_at, mut fewer) = (0, None);
        for taken in 1.. {
            let Some(shard) = shards.get(usize::from(walk.node)) else {
                break;
            };
            let wanted = self.query.limit - locks.len();
            let count = match (walk.split, fewer.take()) {
                (Some(_), _) => 1,
                (None, Some(fewer)) => fewer,
                (None, None) => count(wanted, locks.len(), looked_at),
            };
            let dispatch = &self.context.dispatch;
            let step = dispatch.scan(shard, walk.scan, &pattern, count).await?;
            if !walk.is_of(step.run) {
                // What another run has answered means nothing to this one.
                if taken >= STEPS {
                    let why = "the server changes again and again".to_owned();
                    return Err(Unavailability::Refused(why).into());
                }
                walk.begin(0);
                continue;
            }
            walk.run = Some(step.run);
            let next = step.next;
            let mut found = self.holders(shard, step.names).await?;
            leave_out(walk.split, &mut found, next);
            if found.len() <= wanted {
                looked_at += count;
                locks.extend(found);
                walk.go_on(next);
            } else if count > 1 {
                fewer = Some(narrower(count, wanted, found.len()));
            } else {
                // What lies together is on a page of its own, and if that is too short on several.
                if locks.is_empty() {
                    (locks, walk.split) = split(found, next, self.query.limit);
                }
                break;
            }
            // Nothing has been shown, and the next page would begin with the same.
            if fewer.is_some() && locks.is_empty() {
                continue;
            }
            let enough = locks.len() >= self.query.limit - self.query.limit / SPARE;
            if enough || taken >= STEPS || start.elapsed() >= TIME {
                break;
            }
        }
        let is_over = usize::from(walk.node) >= shards.len();
        Ok(Page {
            locks,
            next: (!is_over).then(|| walk.cursor()),
        })
    }
}

// === impl ScanWalk ===

impl From<Option<Cursor>> for ScanWalk {
    fn from(cursor: Option<Cursor>) -> Self {
        let (node, run, scan, split) = match cursor {
            Some(Cursor::Redis {
                node,
                scanned: Scanned { run, scan, split },
            }) => (node, Some(run), scan, split),
            // A cursor of another store: the walk begins again.
            Some(_) | None => (0, None, 0, None),
        };
        Self {
            node,
            run,
            scan,
            split,
        }
    }
}

impl ScanWalk {
    /// Whether it can go on at this run of the server.
    fn is_of(&self, run: u32) -> bool {
        let has_begun = self.scan != 0 || self.split.is_some();
        !has_begun || self.run.is_none_or(|known| known == run)
    }

    /// The walk begins at a server.
    fn begin(&mut self, node: u16) {
        *self = Self {
            node,
            ..Self::from(None)
        };
    }

    /// All locks were shown up to there; `SCAN` answers 0 at the end of a server.
    fn go_on(&mut self, next: u64) {
        (self.scan, self.split) = (next, None);
        if next == 0 {
            self.begin(self.node.saturating_add(1));
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor::Redis {
            node: self.node,
            scanned: Scanned {
                run: self.run.unwrap_or_default(),
                scan: self.scan,
                split: self.split,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        lock::LockName,
        store::contract::{HeldLock, Holder},
    };

    use super::*;

    fn lock(name: &str) -> HeldLock {
        HeldLock {
            name: LockName::new(name).unwrap(),
            holder: Holder::Foreign {
                expires_in: None,
                mark: None,
            },
            waiters: 0,
        }
    }

    fn names(locks: &[HeldLock]) -> Vec<String> {
        let mut names: Vec<_> = locks.iter().map(|lock| lock.name.to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_lies_together_is_shown_in_parts_and_all_of_it_if_it_has_changed() {
        let all = || ["a", "b", "c", "d", "e"].map(lock).to_vec();
        let next = 1 << 40;
        let mut walk = ScanWalk::from(None);
        let walk_split = |walk: &mut ScanWalk, found| {
            let (shown, split) = split(found, next, 2);
            walk.split = split;
            names(&shown)
        };
        let mut shown = walk_split(&mut walk, all());
        assert_eq!(shown.len(), 2);
        // At another gateway, which finds them in another order.
        let mut walk = ScanWalk::from(Some(walk.cursor()));
        let mut rest = all();
        rest.reverse();
        leave_out(walk.split, &mut rest, next);
        assert_eq!(rest.len(), 3);
        // It ends elsewhere: there may be one among them that was not there.
        let mut changed = all();
        leave_out(walk.split, &mut changed, next + 1);
        assert_eq!(changed.len(), 5);
        shown.extend(walk_split(&mut walk, rest));
        let mut last = all();
        leave_out(walk.split, &mut last, next);
        shown.extend(names(&last));
        shown.sort();
        assert_eq!(shown, names(&all()));
        walk.go_on(next);
        assert_eq!((walk.node, walk.split), (0, None));
        walk.go_on(0);
        assert_eq!((walk.node, walk.scan, walk.run), (1, 0, None));
    }

    #[test]
    fn a_walk_that_has_begun_goes_on_at_the_same_run_only() {
        let mut walk = ScanWalk::from(None);
        assert!(walk.is_of(1));
        walk.run = Some(1);
        assert!(walk.is_of(2), "it has not begun");
        walk.split = split(vec![lock("a"), lock("b")], 7, 1).1;
        assert!(walk.is_of(1) && !walk.is_of(2));
        walk.go_on(7);
        assert!(walk.is_of(1) && !walk.is_of(2));
    }
}
