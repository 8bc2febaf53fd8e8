//! Fills a page of a list: scans a majority of the nodes one after the other, and asks all nodes for the holder of each
//! lock found.
//!
//! A lease is at a majority of the nodes, so at least one scanned node has it, and its lock is shown when the first of
//! them is scanned. But the lease may have come to that node after its scan, because it came late or the lock has
//! passed on. So a lock is left out only if an earlier node has had the lease for longer than the walk has lasted, and
//! a young lease may be shown more than once. A lock can be missed if its lease is missing at a node while the walk is
//! there, and the lock then passes to a lease that is missing at the node where the walk comes next.

use std::collections::HashSet;

use bb8_redis::redis::{Value, from_redis_value};
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{Duration, Instant};

use crate::{
    lock::{HeldLease, LockName},
    store::{
        StoreError, Unavailability,
        contract::{HeldLock, ListQuery, Page, Waiter},
        cursor::{Cursor, Scanned},
        list_filter::Shown,
    },
};

use super::{
    super::{
        client::{
            Command,
            scan::{self, narrower},
        },
        keys::Keys,
    },
    quorum::too_few,
    record::NodeHolder,
    shared::Shared,
};

/// How many scan steps one page of a list may take, and for how long after the start of the page further steps may
/// begin.
const STEPS: usize = 32;
const TIME: Duration = Duration::from_secs(1);
/// How many locks of a page are looked up at the nodes at the same time.
const READS: usize = 64;

/// Position of a list's walk over the nodes.
#[derive(Debug, Clone, Copy, Default)]
struct ScanPosition {
    node: usize,
    /// How many nodes before the current node did not answer.
    skipped: usize,
    /// Identifies the run of the node's server that was scanned, once that run is known.
    run: Option<u32>,
    scan: u64,
}

/// Start and duration of a list's walk over the nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListWalk {
    /// When the walk began, in milliseconds, by the clock of the first node; 0 if that node does not tell its time.
    pub(super) since: u64,
    lasted: Option<Duration>,
    /// Instant just before the duration `lasted` was read from the clock of the node.
    at: Instant,
}

/// Tolerance for the times that nodes report.
const JITTER: Duration = Duration::from_millis(5);

// === impl Shared ===

impl Shared {
    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let start = Instant::now();
        let pattern = Keys::pattern(&query.filter.prefix);
        let (mut position, since) = self.position(query.cursor);
        let mut walk = self.walk(since).await;
        let mut seen = HashSet::new();
        let (mut locks, mut looked_at, mut fewer) = (Vec::new(), 0, None);
        let mut over = false;
        for taken in 1.. {
            let wanted = query.limit - locks.len();
            let count = fewer.take();
            let count = count.unwrap_or_else(|| scan::count(wanted, locks.len(), looked_at));
            let mut finished = false;
            let node = &self.quorum.nodes()[position.node];
            match node
                .dispatch
                .scan(&node.shard, position.scan, &pattern, count)
                .await
            {
                Err(error) => {
                    position = self.skip_node(position, &error)?;
                }
                Ok(step) if position.run.is_some_and(|run| run != step.run) => {
                    // The scan position of one run of a server means nothing to another run, so the walk starts again.
                    position = ScanPosition::default();
                    walk = self.walk(None).await;
                    seen.clear();
                }
                Ok(step) => {
                    position.run = Some(step.run);
                    let names: HashSet<LockName> = step.names.into_iter().collect();
                    let new = names.difference(&seen).cloned().collect();
                    let found = self.holders(new, query, position, &walk).await?;
                    // Locks that lie together cannot be scanned in parts, so a page with only these locks may exceed
                    // its limit by a few.
                    if found.len() <= wanted || (count == 1 && locks.is_empty()) {
                        looked_at += count;
                        locks.extend(found);
                        seen.extend(names);
                        position.scan = step.next;
                        finished = step.next == 0;
                    } else if count > 1 {
                        fewer = Some(narrower(count, wanted, found.len()));
                    } else {
                        break;
                    }
                }
            }
            if finished {
                over = position.node + 1 - position.skipped >= self.quorum.majority();
                position = ScanPosition {
                    node: position.node + 1,
                    run: None,
                    ..position
                };
            }
            // No lock has been shown, and the next page would begin with the same scan step.
            if fewer.is_some() && locks.is_empty() {
                continue;
            }
            let enough = locks.len() >= query.limit;
            if over || enough || taken >= STEPS || start.elapsed() >= TIME {
                break;
            }
        }
        let next = (!over).then(|| position.cursor(walk.since));
        Ok(Page { locks, next })
    }

    /// A list's walk that began at `since`, or begins now.
    pub(super) async fn walk(&self, since: Option<u64>) -> ListWalk {
        let at = Instant::now();
        let node = &self.quorum.nodes()[0];
        let command = Command::new("TIME");
        let time = node.dispatch.plain_to(&node.shard, &command).await;
        let now = time.ok().and_then(millis);
        let since = since.or(now).unwrap_or_default();
        let lasted = now.and_then(|now| now.checked_sub(since));
        ListWalk {
            since,
            lasted: lasted.map(Duration::from_millis).filter(|_| since > 0),
            at,
        }
    }

    /// The position that a cursor names, and when its walk began; the beginning if the cursor names no position in this
    /// quorum.
    fn position(&self, cursor: Option<Cursor>) -> (ScanPosition, Option<u64>) {
        let Some(Cursor::Quorum {
            node,
            skipped,
            since,
            scanned: Scanned { run, scan },
        }) = cursor
        else {
            return (ScanPosition::default(), None);
        };
        let [skipped, node] = [skipped, node].map(usize::from);
        if node >= self.quorum.nodes().len() || skipped > node {
            return (ScanPosition::default(), None);
        }
        let position = ScanPosition {
            node,
            skipped,
            run: (scan != 0).then_some(run),
            scan,
        };
        (position, Some(since))
    }

    /// Moves the walk to the next node; fails if too many nodes could not be scanned.
    fn skip_node(
        &self,
        position: ScanPosition,
        error: &StoreError,
    ) -> Result<ScanPosition, StoreError> {
        let skipped = position.skipped + 1;
        if self.quorum.nodes().len() - skipped < self.quorum.majority() {
            return Err(match error {
                StoreError::Unavailable(Unavailability::Misconfigured(_)) => error.clone(),
                error => too_few(position.node + 1, position.node + 1 - skipped, Some(error)),
            });
        }
        Ok(ScanPosition {
            node: position.node + 1,
            skipped,
            ..ScanPosition::default()
        })
    }

    /// The holders of these locks, without leases that an earlier node of the walk has shown.
    async fn holders(
        &self,
        names: Vec<LockName>,
        query: &ListQuery,
        position: ScanPosition,
        walk: &ListWalk,
    ) -> Result<Vec<HeldLock>, StoreError> {
        // The cursor does not tell which nodes were skipped, so no earlier node counts as scanned.
        let before = if position.skipped == 0 {
            position.node
        } else {
            0
        };
        let reads = stream::iter(names).map(|name| async move {
            let view = self.view(&self.keys(&name), false).await?;
            // If the holder is not certain, the likely holder is shown: a lock that is held throughout the walk must
            // not be missing.
            let holding = view.likely_holder().ok().flatten();
            if let Some(NodeHolder::Lease(token, _)) = &holding
                && view
                    .nodes_holding(token)
                    .any(|(at, lease)| at < before && walk.is_younger_than(lease))
            {
                return Ok(None);
            }
            let Some(holder) = holding.map(NodeHolder::holder) else {
                return Ok(None);
            };
            let shown = holder.shown_by(&name, &query.filter);
            let local_queue = self.local_queues.existing(&name);
            let (found, waiters) = match shown {
                Shown::No => return Ok(None),
                Shown::Yes(found) => (
                    Some(found),
                    local_queue.map_or(0, |it| it.len(Instant::now())),
                ),
                Shown::ByWaiter => {
                    let (queue, waiters) = local_queue
                        .map_or_else(Default::default, |it| it.head_and_len(Instant::now()));
                    (
                        query
                            .filter
                            .find_waiter(queue.iter().map(Waiter::said))
                            .map(Some),
                        waiters,
                    )
                }
            };
            Ok::<_, StoreError>(found.map(|found| HeldLock {
                name,
                holder,
                waiters,
                found,
            }))
        });
        let found: Vec<_> = reads.buffer_unordered(READS).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

// === impl ScanPosition ===

impl ScanPosition {
    fn cursor(self, since: u64) -> Cursor {
        let byte = |number| u8::try_from(number).expect("there are at most 15 nodes");
        Cursor::Quorum {
            node: byte(self.node),
            skipped: byte(self.skipped),
            since,
            scanned: Scanned {
                run: self.run.unwrap_or_default(),
                scan: self.scan,
            },
        }
    }
}

// === impl ListWalk ===

impl ListWalk {
    /// Whether a node has certainly had this lease since before the walk began. Clocks drift apart by a hundredth at
    /// most.
    pub(super) fn is_younger_than(&self, lease: &HeldLease) -> bool {
        self.lasted.is_some_and(|lasted| {
            let lasted = lasted + self.at.elapsed();
            lease.held_for > lasted + lasted / 50 + JITTER
        })
    }
}

fn millis(time: Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = from_redis_value(time).ok()?;
    Some(seconds * 1_000 + micros / 1_000)
}
