//! Lists of locks: scans of the keys, and reads of the locks that they find.
//!
//! A list is a walk over all locks, and the gateway keeps nothing between pages. A page is a few `SCAN` steps over
//! `lg:{PREFIX*}:lock`, at most 512 keys each, one master after the other. Pipelines of plain reads show the locks that
//! were found; foreign values and shared locks need a script. The cursor contains the position of `SCAN` and the node.
//! A checksum ties the cursor, which contains no name, to the list's filter.

use std::{collections::HashSet, sync::Arc};

use bb8_redis::redis::Value;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::{Duration, Instant};

use crate::{
    lock::{HeldLease, Limit, LockName},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{HeldLock, Holder, ListQuery, Page, SHOWN_HOLDERS, Waiter},
        cursor::{Cursor, Scanned},
        list_filter::Shown,
    },
};

use super::{
    client::{
        Command, answered,
        failure::Failure,
        scan::{self, narrower, repeat_read, writable},
        shard::Shard,
    },
    keys::Keys,
    records::{MAX_LEASE_BYTES, Record},
    scripts::{LockScripts, RedisContext},
};

/// Fills one page of a list of held locks.
pub(crate) struct RedisListing<'a> {
    pub(crate) context: &'a RedisContext,
    pub(crate) query: &'a ListQuery,
}

/// How many `SCAN` steps one page of a list may take, and how long after the start of the page the last step may begin.
const STEPS: usize = 32;
const TIME: Duration = Duration::from_millis(250);
/// An eighth (1/`SPARE`) of a page may stay empty, because filling it might take a step for each lock.
const SPARE: usize = 8;

/// The position of a walk through the locks of all servers.
struct ScanWalk {
    /// The index of the server in
    /// [`Topology::shards_by_slot`](super::super::client::topology::Topology::shards_by_slot).
    node: u16,
    /// The run of the server with this index, if the run is known.
    run: Option<u32>,
    scan: u64,
}

// === impl RedisListing ===

impl RedisListing<'_> {
    /// Fills a page with as many locks as were requested, or a few less.
    pub(crate) async fn page(&self) -> Result<Page, StoreError> {
        let topology = &self.context.dispatch.topology;
        topology.wait_until_known().await;
        // The page takes room for a request at one server, which stands for all servers, because all have equal room.
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
            let count = fewer.take();
            let count = count.unwrap_or_else(|| scan::count(wanted, locks.len(), looked_at));
            let dispatch = &self.context.dispatch;
            let step = dispatch.scan(shard, walk.scan, &pattern, count).await?;
            if !walk.is_of(step.run) {
                // The position of `SCAN` at another run of the server has no meaning for this run, so the scan of this
                // server begins again.
                if taken >= STEPS {
                    let why = "the server changes again and again".to_owned();
                    return Err(Unavailability::Refused(why).into());
                }
                walk.begin(0);
                continue;
            }
            walk.run = Some(step.run);
            let found = self.holders(shard, step.names).await?;
            // Keys of one bucket are always scanned together, so a page of a single step may have a few locks too many.
            if found.len() <= wanted || (count == 1 && locks.is_empty()) {
                looked_at += count;
                locks.extend(found);
                walk.go_on(step.next);
            } else if count > 1 {
                fewer = Some(narrower(count, wanted, found.len()));
            } else {
                break;
            }
            // An empty page would make the next page repeat the same step, so this page goes on.
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
        let (node, run, scan) = match cursor {
            Some(Cursor::Redis {
                node,
                scanned: Scanned { run, scan },
            }) => (node, Some(run), scan),
            // The cursor is of another store, so the walk begins again.
            Some(_) | None => (0, None, 0),
        };
        Self { node, run, scan }
    }
}

impl ScanWalk {
    /// Whether the walk can continue at this run of the server.
    fn is_of(&self, run: u32) -> bool {
        self.scan == 0 || self.run.is_none_or(|known| known == run)
    }

    /// Moves the walk to the beginning of a server.
    fn begin(&mut self, node: u16) {
        *self = Self {
            node,
            ..Self::from(None)
        };
    }

    /// Moves the walk past the locks that were shown. `SCAN` answers 0 at the end of a server, and the walk goes to the
    /// next server.
    fn go_on(&mut self, next: u64) {
        self.scan = next;
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
            },
        }
    }
}

// Reads locks that a scan has found, many with one batch of plain reads, because a script for each lock would cost the
// server several times as much. A lease is one text with its end, so that one read shows the lease at an instant. Locks
// without a readable lease are left to `list.lua`.

/// The result of the plain reads of a lock: its lease, and how many tickets are in its queue. If there is no lease, a
/// script must read the lock: a foreign client may hold the lock, several leases may share it, or it is free by now.
/// While a slot moves, some tickets may be at the other server.
type LockRead = (Option<HeldLease>, u64);

/// How many commands a batch sends for each lock.
const COMMANDS: usize = 2;

/// Reads the replies to [`commands`], which were sent at `sent`.
fn read(replies: &[Value], sent: Instant) -> Result<Vec<LockRead>, Failure> {
    for reply in replies {
        let Value::ServerError(error) = reply else {
            continue;
        };
        match answered(error) {
            // These errors concern one lock only, which a script will read. While a slot is being moved, the reads must
            // not be sent one by one to where the keys are, because their order matters.
            Failure::WrongType | Failure::Elsewhere(_) => {}
            failure => return Err(failure),
        }
    }
    let [time, seen @ .., replication] = replies else {
        return Err(unexpected());
    };
    // The server's role was read last: a server that is a master at the end was a master during the reads.
    writable(replication)?;
    let now = microseconds(time).ok_or_else(unexpected)?;
    let (seen, []) = seen.as_chunks::<COMMANDS>() else {
        return Err(unexpected());
    };
    let seen = seen.iter().map(|[value, queue]| {
        let waiters = match queue {
            Value::Int(count) => count.unsigned_abs(),
            // The key of the queue is of another type, or at another server.
            _ => 0,
        };
        (read_lease(value, now, sent), waiters)
    });
    Ok(seen.collect())
}

fn commands(batch: &[Keys]) -> Vec<Command> {
    let reads = batch.iter().flat_map(|keys| {
        // A foreign value may have any length, so no more than the length of the longest lease is read.
        let lease = Command::new("GETRANGE").with(keys.lock()).with(0);
        [
            lease.with(MAX_LEASE_BYTES),
            Command::new("LLEN").with(keys.wait()),
        ]
    });
    let role = Command::new("INFO").with("replication");
    [Command::new("TIME")]
        .into_iter()
        .chain(reads)
        .chain([role])
        .collect()
}

fn read_lease(value: &Value, now: u64, sent: Instant) -> Option<HeldLease> {
    let Value::BulkString(value) = value else {
        return None;
    };
    let record = Record::read(std::str::from_utf8(value).ok()?)?;
    // A lease whose end is over, but whose key still exists, was changed by hand, and a script reads it.
    let lease = record.lease(now, sent);
    lease.filter(|lease| !lease.expires_in.is_zero())
}

/// Reads the time in microseconds from the reply to TIME.
fn microseconds(time: &Value) -> Option<u64> {
    let Value::Array(parts) = time else {
        return None;
    };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = parts.as_slice() else {
        return None;
    };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    number(seconds)?
        .checked_mul(1_000_000)?
        .checked_add(number(micros)?)
}

fn unexpected() -> Failure {
    Failure::Unknown(Uncertainty::UnexpectedReply("no look at locks".to_owned()))
}

// Reads the holders and the number of waiters of locks that were found for a list.

/// How many locks are read with one batch, and how many batches are in progress at once. A batch blocks the server for
/// a fraction of a millisecond.
const BATCH: usize = 64;
const BATCHES: usize = 4;
/// How many locks of a batch are read by scripts at once.
const SCRIPTS: usize = 16;

// === impl RedisListing ===

impl RedisListing<'_> {
    /// Reads the locks that were found on a server, and returns those that are held and match the filter.
    async fn holders(
        &self,
        shard: &Arc<Shard>,
        names: Vec<LockName>,
    ) -> Result<Vec<HeldLock>, StoreError> {
        // One step of `SCAN` may find a key twice.
        let names: HashSet<LockName> = names.into_iter().collect();
        let keys = names.into_iter().map(|name| self.context.keys(&name));
        let batches = stream::iter(keys).chunks(BATCH);
        let seen = batches.map(|batch| self.holders_of_batch(shard, batch));
        seen.buffer_unordered(BATCHES).try_concat().await
    }

    async fn holders_of_batch(
        &self,
        shard: &Arc<Shard>,
        batch: Vec<Keys>,
    ) -> Result<Vec<HeldLock>, StoreError> {
        let (dispatch, commands) = (&self.context.dispatch, commands(&batch));
        let read_all = async || {
            let sent = Instant::now();
            read(&dispatch.batch_to(shard, &commands).await?, sent)
        };
        let seen = repeat_read(read_all).await?;
        let mut found = Vec::new();
        let mut unclear = Vec::new();
        for (keys, (lease, waiters)) in batch.into_iter().zip(seen) {
            match lease.map(|lease| self.to_held_lock(&keys, Holder::Lease(lease), waiters)) {
                None => unclear.push((keys, None, waiters)),
                Some((Shown::Yes(_), lock)) => found.push(lock),
                Some((Shown::ByWaiter, lock)) if waiters > 0 => {
                    unclear.push((keys, Some(lock), waiters));
                }
                Some((Shown::ByWaiter | Shown::No, _)) => {}
            }
        }
        let closer = stream::iter(unclear).map(async |(keys, lock, waiters)| match lock {
            Some(lock) => self.search_waiters(&self.context.lock(keys), lock).await,
            None => self.inspect_one(keys, waiters).await,
        });
        let mut closer = closer.buffer_unordered(SCRIPTS);
        while let Some(lock) = closer.try_next().await? {
            found.extend(lock);
        }
        Ok(found)
    }

    /// Reads the holder of a lock at one instant, with a script.
    async fn inspect_one(&self, keys: Keys, waiters: u64) -> Result<Option<HeldLock>, StoreError> {
        let most = if self.query.filter.looks_at_leases() {
            // Any lease that shares the lock may match the list's filter, so all of them are read.
            usize::from(Limit::MAX)
        } else {
            SHOWN_HOLDERS
        };
        let scripts = self.context.lock(keys);
        let Some(holder) = self
            .unless_moving(scripts.list(most, None).await)?
            .flatten()
        else {
            return Ok(None);
        };
        match self.to_held_lock(&scripts.keys, holder, waiters) {
            (Shown::Yes(_), lock) => Ok(Some(lock)),
            (Shown::ByWaiter, lock) if waiters > 0 => self.search_waiters(&scripts, lock).await,
            (Shown::ByWaiter | Shown::No, _) => Ok(None),
        }
    }

    /// The lock, if one of its first waiters has the search text.
    async fn search_waiters(
        &self,
        scripts: &LockScripts<'_>,
        mut lock: HeldLock,
    ) -> Result<Option<HeldLock>, StoreError> {
        let inspection = self.unless_moving(scripts.inspect().await)?;
        let queue = inspection.map(|it| it.queue).unwrap_or_default();
        lock.found = self
            .query
            .filter
            .find_waiter(queue.iter().map(Waiter::said));
        Ok(lock.found.is_some().then_some(lock))
    }

    /// The answer for a lock, or `None` while the keys of the lock may be at two servers of a cluster, because its slot
    /// moves. The list misses the lock.
    fn unless_moving<T>(&self, answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match answer {
            Err(StoreError::Unavailable(Unavailability::Refused(_)))
                if self.context.dispatch.topology.is_cluster() =>
            {
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    /// The lock as the list shows it, and whether the list shows the lock.
    fn to_held_lock(&self, keys: &Keys, mut holder: Holder, waiters: u64) -> (Shown, HeldLock) {
        let floors = &self.context.gateway.floors;
        floors.raise_to_holder(keys.slot(), Some(&holder));
        let name = keys.name().clone();
        let shown = holder.shown_by(&name, &self.query.filter);
        if let Holder::Shared(holders) = &mut holder
            && holders.leases.len() > SHOWN_HOLDERS
        {
            // No rest hides a holder.
            holders.leases.sort_by_key(|lease| lease.is_resting);
            holders.leases.truncate(SHOWN_HOLDERS);
        }
        let found = match &shown {
            Shown::Yes(found) => found.clone(),
            Shown::ByWaiter | Shown::No => None,
        };
        let lock = HeldLock {
            name,
            holder,
            waiters,
            found,
        };
        (shown, lock)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::client::text, *};

    const NOW: u64 = 1_795_000_000_000_000;

    fn lease(ends: u64) -> Value {
        let (id, marks, since) = ("a1".repeat(32), "hx000", NOW - 100_000);
        let rest = format!("0003000000000000000000000{:64}ci\n", "");
        text(&format!("2{id}{marks}{:016}{since}{ends}{rest}", 7))
    }

    #[test]
    fn a_lease_is_told_from_what_others_have_written() {
        let lease = read_lease(&lease(NOW + 500_000), NOW, Instant::now()).expect("a lease");
        assert_eq!((lease.fence.get(), lease.expires_in.as_millis()), (7, 500));
        assert_eq!(lease.held_for.as_millis(), 100);
        assert_eq!(lease.said.owner.unwrap().as_str(), "ci");
        for value in [text("theirs"), text(""), Value::Nil, self::lease(NOW)] {
            assert_eq!(read_lease(&value, NOW, Instant::now()), None, "{value:?}");
        }
    }

    fn replies(seen: &[Value; COMMANDS], role: &str) -> Vec<Value> {
        let time = Value::Array(["1795000000", "000000"].map(text).into());
        let role = text(&format!("# Replication\r\nrole:{role}\r\n"));
        [&[time], &seen[..], &[role]].concat()
    }

    fn error(line: &str) -> Value {
        let parsed = bb8_redis::redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        parsed.unwrap()
    }

    #[test]
    fn what_a_replica_or_a_server_that_refuses_has_answered_is_not_believed() {
        let seen = || [lease(NOW + 500_000), Value::Int(3)];
        let of_master = read(&replies(&seen(), "master"), Instant::now()).unwrap();
        assert!(matches!(of_master[..], [(Some(_), 3)]), "{of_master:?}");
        let replica = read(&replies(&seen(), "slave"), Instant::now());
        assert!(matches!(replica, Err(Failure::WrongNode(_))), "{replica:?}");
        let refused = [error("NOPERM no getrange"), Value::Int(0)];
        let refused = read(&replies(&refused, "master"), Instant::now());
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
        let odd = [error("WRONGTYPE a list"), error("WRONGTYPE a list")];
        let unclear = read(&replies(&odd, "master"), Instant::now());
        assert_eq!(unclear, Ok(vec![(None, 0)]));
        assert!(read(&[Value::Nil], Instant::now()).is_err());
    }

    #[test]
    fn a_time_is_read_in_microseconds() {
        let time = |parts: &[&str]| Value::Array(parts.iter().map(|it| text(it)).collect());
        assert_eq!(
            microseconds(&time(&["1795170000", "123456"])),
            Some(1_795_170_000_123_456)
        );
        for odd in [&["x", "1"][..], &["1"], &["18446744073709551615", "0"]] {
            assert_eq!(microseconds(&time(odd)), None, "{odd:?}");
        }
    }

    #[test]
    fn a_walk_that_has_begun_goes_on_at_the_same_run_only() {
        let mut walk = ScanWalk::from(None);
        assert!(walk.is_of(1));
        walk.run = Some(1);
        assert!(walk.is_of(2), "it has not begun");
        walk.go_on(7);
        let mut walk = ScanWalk::from(Some(walk.cursor()));
        assert!(walk.is_of(1) && !walk.is_of(2));
        walk.go_on(0);
        assert_eq!((walk.node, walk.scan, walk.run), (1, 0, None));
    }
}
