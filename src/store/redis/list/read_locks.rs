//! Looks at locks that a scan has found, many with one batch of plain reads.
//!
//! A script for each lock would cost the server several times as much. A lease is one text, which says until
//! when it lasts, so that one read shows it as it is at an instant. What is no lease of ours is left to
//! `list.lua`.

use std::{collections::HashSet, sync::Arc};

use bb8_redis::redis::Value;
use futures_util::{StreamExt, TryStreamExt, stream};
use tokio::time::Instant;

use crate::{
    lock::{HeldLease, Limit, LockName},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{HeldLock, Holder, SHOWN_HOLDERS},
    },
};

use super::{
    super::{
        client::{
            Command, answered,
            failure::Failure,
            scan::{repeat_read, writable},
            shard::Shard,
        },
        keys::Keys,
        records::{MAX_LEASE_BYTES, Record},
    },
    page::RedisListing,
};

/// What was seen of a lock and its queue.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LockRead {
    /// The lease of ours that holds it. Without one a script looks at the lock: a foreign client may hold it, several
    /// leases may share it, or it is free by now.
    pub(crate) lease: Option<HeldLease>,
    /// How many tickets are in its queue. While a slot moves, some may be at the other server.
    pub(crate) waiters: u64,
}

/// How many commands are sent for a lock.
const COMMANDS: usize = 2;

/// What the replies to [`commands`] say, which were sent then.
fn read(replies: &[Value], sent: Instant) -> Result<Vec<LockRead>, Failure> {
    for reply in replies {
        let Value::ServerError(error) = reply else {
            continue;
        };
        match answered(error) {
            // Of one lock only, and looked into by the script. In a slot that is being moved the reads
            // must not be sent one by one to where the keys are: their order counts.
            Failure::WrongType | Failure::Elsewhere(_) => {}
            failure => return Err(failure),
        }
    }
    let [time, seen @ .., replication] = replies else {
        return Err(unexpected());
    };
    // It is asked last: who is a master then was one before.
    writable(replication)?;
    let now = microseconds(time).ok_or_else(unexpected)?;
    let (seen, []) = seen.as_chunks::<COMMANDS>() else {
        return Err(unexpected());
    };
    Ok(seen.iter().map(|seen| judge(seen, now, sent)).collect())
}

fn commands(batch: &[Keys]) -> Vec<Command> {
    let reads = batch.iter().flat_map(|keys| {
        // What a foreign client has written may be of any length.
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

fn judge([value, queue]: &[Value; COMMANDS], now: u64, sent: Instant) -> LockRead {
    LockRead {
        lease: read_lease(value, now, sent),
        waiters: match queue {
            Value::Int(count) => count.unsigned_abs(),
            // The key is of another type, or at another server.
            _ => 0,
        },
    }
}

fn read_lease(value: &Value, now: u64, sent: Instant) -> Option<HeldLease> {
    let Value::BulkString(value) = value else {
        return None;
    };
    let record = Record::read(std::str::from_utf8(value).ok()?)?;
    // What has no end any more although it should have ended was changed by hand.
    let lease = record.lease(now, sent);
    lease.filter(|lease| !lease.expires_in.is_zero())
}

/// The microseconds of a TIME.
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

// === List holders ===
//
// Looks at locks that were found for a list: who holds them, and how many wait.

/// How many locks are looked at with one batch, and how many batches are under way at once. What is
/// read at one go keeps the server from others for a fraction of a millisecond.
const BATCH: usize = 64;
const BATCHES: usize = 4;
/// How many locks of a batch are looked at with a script at once.
const SCRIPTS: usize = 16;

// === impl RedisListing ===

impl RedisListing<'_> {
    /// Who holds the locks that were found on a server.
    pub(crate) async fn holders(
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
            let keys = batch.map(|name| self.context.keys(&name));
            batches.push(keys.collect::<Vec<_>>());
        }
        let seen = stream::iter(batches).map(|batch| self.holders_of_batch(shard, batch));
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
        for (keys, LockRead { lease, waiters }) in batch.into_iter().zip(seen) {
            let Some(lease) = lease else {
                unclear.push((keys, waiters));
                continue;
            };
            let lock = self.to_held_lock(&keys, Some(Holder::Lease(lease)), waiters);
            found.extend(lock.map(|lock| (keys, lock)));
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
        waiters: u64,
    ) -> Result<Option<(Keys, HeldLock)>, StoreError> {
        let most = if self.query.filter.looks_at_leases() {
            // Any of those who share it may be the one.
            usize::from(Limit::MAX)
        } else {
            SHOWN_HOLDERS
        };
        let lock = self.context.lock(keys);
        let holder = match lock.list(most, None).await {
            Ok(holder) => holder,
            // While a slot moves, the keys of a lock may be at two servers. The list misses the lock.
            Err(StoreError::Unavailable(Unavailability::Refused(_)))
                if self.context.dispatch.topology.is_cluster() =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let keys = lock.keys;
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
        match self.context.lock(keys).count().await {
            Ok(waiters) => lock.waiters = waiters,
            // Where a slot is being moved the queue may be in two places: all in it are counted.
            Err(StoreError::Unavailable(_)) if self.context.dispatch.topology.is_cluster() => {}
            Err(error) => return Err(error),
        }
        Ok(lock)
    }

    /// The lock as it is shown, if it is held and wanted.
    fn to_held_lock(&self, keys: &Keys, holder: Option<Holder>, waiters: u64) -> Option<HeldLock> {
        let floors = &self.context.gateway.floors;
        floors.raise_to_holder(keys.slot(), holder.as_ref());
        let name = keys.name().clone();
        let mut holder = holder.filter(|holder| holder.is_shown(&name, &self.query.filter))?;
        if let Holder::Shared(holders) = &mut holder {
            holders.leases.truncate(SHOWN_HOLDERS);
        }
        Some(HeldLock {
            name,
            holder,
            waiters,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    const NOW: u64 = 1_795_000_000_000_000;

    fn lease(ends: u64) -> Value {
        let (id, marks, since) = ("a1".repeat(32), "hx000", NOW - 100_000);
        let rest = format!("00030000000000000{:64}ci\n", "");
        text(&format!("2{id}{marks}{:016}{since}{ends}{rest}", 7))
    }

    #[test]
    fn a_lease_is_told_from_what_others_have_written() {
        let lease = read_lease(&lease(NOW + 500_000), NOW, Instant::now()).expect("a lease");
        assert_eq!((lease.fence.get(), lease.expires_in.as_millis()), (7, 500));
        assert_eq!(lease.held_for.as_millis(), 100);
        assert_eq!(lease.owner.unwrap().as_str(), "ci");
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
        let [
            LockRead {
                lease: Some(_),
                waiters: 3,
            },
        ] = of_master[..]
        else {
            panic!("{of_master:?}");
        };
        let replica = read(&replies(&seen(), "slave"), Instant::now());
        assert!(matches!(replica, Err(Failure::WrongNode(_))), "{replica:?}");
        let refused = [error("NOPERM no getrange"), Value::Int(0)];
        let refused = read(&replies(&refused, "master"), Instant::now());
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
        let odd = [error("WRONGTYPE a list"), error("WRONGTYPE a list")];
        let unclear = LockRead {
            lease: None,
            waiters: 0,
        };
        assert_eq!(
            read(&replies(&odd, "master"), Instant::now()),
            Ok(vec![unclear])
        );
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
}
