//! One step of a scan through the keys of a server, how large it is, and how reads are repeated.

use std::sync::Arc;

use bb8_redis::redis::Value;
use sha2::{Digest, Sha256};
use tokio::time::{Duration, Instant, sleep};

use crate::{
    lock::LockName,
    store::{StoreError, Unavailability, Uncertainty},
};

use super::{
    super::keys::Keys,
    connection::answered,
    dispatch::{Dispatch, Pauses},
    failure::{ACL_LINE, Failure, hint},
    identity::{RunId, info_field},
    script::Command,
    shard::Shard,
};

/// The result of one step of a scan.
#[derive(Debug)]
pub(crate) struct Step {
    /// Names of the locks that were found; a name may appear twice.
    pub(crate) names: Vec<LockName>,
    /// Cursor at which the next step begins; 0 if this step was the last.
    pub(crate) next: u64,
    /// Short hash of the server's run: a cursor is valid only for the run that gave it.
    pub(crate) run: u32,
}

// === impl Dispatch ===

impl Dispatch {
    /// Looks for locks from the cursor `from` on, among about `count` keys. It changes nothing, so it is repeated if
    /// it fails.
    pub(crate) async fn scan(
        &self,
        shard: &Arc<Shard>,
        from: u64,
        pattern: &str,
        count: usize,
    ) -> Result<Step, StoreError> {
        repeat_read(|| self.scan_once(shard, from, pattern, count)).await
    }

    async fn scan_once(
        &self,
        shard: &Arc<Shard>,
        from: u64,
        pattern: &str,
        count: usize,
    ) -> Result<Step, Failure> {
        let scan = Command::new("SCAN").with(from).with("MATCH").with(pattern);
        let commands = [
            Command::new("INFO").with("server"),
            // A replica answers from its own data, and does not know who holds a lock now.
            Command::new("INFO").with("replication"),
            scan.with("COUNT").with(count),
        ];
        let replies = self.batch_to(shard, &commands).await?;
        if let Some(error) = replies.iter().find_map(|reply| match reply {
            Value::ServerError(error) => Some(error),
            _ => None,
        }) {
            return Err(answered(error));
        }
        let [Value::BulkString(server), replication, found] = replies.as_slice() else {
            return Err(unexpected());
        };
        writable(replication)?;
        let (next, names) = read(found).ok_or_else(unexpected)?;
        let run = RunId::read(&String::from_utf8_lossy(server));
        let run = short(run.as_ref().map_or("", RunId::as_str));
        Ok(Step { names, next, run })
    }
}

fn unexpected() -> Failure {
    Failure::Unknown(Uncertainty::UnexpectedReply("no scan".to_owned()))
}

/// Refuses the replies of a replica, which its reply to `INFO replication` reveals.
pub(crate) fn writable(replication: &Value) -> Result<(), Failure> {
    let Value::BulkString(info) = replication else {
        return Err(unexpected());
    };
    if info_field(&String::from_utf8_lossy(info), "role") == Some("slave") {
        let why = "READONLY: this server is a replica".to_owned();
        return Err(Failure::WrongNode(Unavailability::Refused(why)));
    }
    Ok(())
}

/// Reads a reply to SCAN: the next cursor, and the names of the locks.
fn read(found: &Value) -> Option<(u64, Vec<LockName>)> {
    let Value::Array(found) = found else {
        return None;
    };
    let [Value::BulkString(next), Value::Array(keys)] = found.as_slice() else {
        return None;
    };
    let next = std::str::from_utf8(next).ok()?.parse().ok()?;
    let names = keys.iter().filter_map(|key| match key {
        Value::BulkString(key) => Keys::name_in(key),
        _ => None,
    });
    Some((next, names.collect()))
}

/// Short hash of the id of a run, enough to tell it from another run.
fn short(run: &str) -> u32 {
    let digest: [u8; 32] = Sha256::digest(run).into();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

// === Pages ===
//
// How many keys one step of a scan looks at.

/// Bounds of the keys that one step looks at. While no lock was found, at least as many as are worth a round trip;
/// never more than keep the server busy for a fraction of a millisecond.
const MIN_KEYS_PER_STEP: usize = 16;
const MAX_KEYS_PER_STEP: usize = 512;
/// A step looks at 1/16 fewer keys than are expected to be needed: locks may lie close together, and if a step finds
/// too many, part of the keys is looked at again.
const CAUTION: usize = 16;

/// How many keys the next step looks at to find `wanted` locks, if `found` locks were among the `looked_at` keys so
/// far.
pub(crate) fn count(wanted: usize, found: usize, looked_at: usize) -> usize {
    let expected = if looked_at == 0 {
        wanted
    } else {
        wanted.saturating_mul(looked_at) / found.max(1)
    };
    let least = if found == 0 { MIN_KEYS_PER_STEP } else { 1 };
    (expected - expected / CAUTION).clamp(least, MAX_KEYS_PER_STEP)
}

/// How many keys to look at instead of `count`, which showed `found` locks and so more than `wanted`.
pub(crate) fn narrower(count: usize, wanted: usize, found: usize) -> usize {
    let expected = count * wanted / found;
    (expected - expected / CAUTION).max(1)
}

// === Repeated reads ===

/// How long a failed read is repeated.
const REPEATED_FOR: Duration = Duration::from_secs(1);

/// Repeats a failed read for a while, if that may help. A read changes nothing, so repeating it is safe.
pub(crate) async fn repeat_read<T, F>(read: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, Failure>>,
{
    let (start, mut pauses) = (Instant::now(), Pauses::new());
    loop {
        let (error, again): (StoreError, _) = match read().await {
            Ok(read) => return Ok(read),
            Err(Failure::Refused(why)) => (hint(why, ACL_LINE).into(), false),
            Err(failure @ (Failure::NoScript | Failure::WrongType)) => (failure.into(), false),
            Err(Failure::Unknown(why @ Uncertainty::UnexpectedReply(_))) => (why.into(), false),
            Err(failure) => (failure.into(), true),
        };
        let pause = pauses.next();
        if !again || start.elapsed() + pause >= REPEATED_FOR {
            return Err(error);
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{super::resp::text, *};

    #[test]
    fn keys_that_are_of_no_lock_are_left_out() {
        let keys = ["lg:{a}:lock", "lg:{a}:x}:lock", "lg:{b}:lock"].map(text);
        let found = Value::Array(vec![text("17"), Value::Array(keys.into())]);
        let names = ["a", "b"].map(|name| LockName::new(name).unwrap());
        assert_eq!(read(&found), Some((17, names.into())));
        for odd in [
            Value::Nil,
            Value::Array(vec![text("17")]),
            Value::Array(vec![text("x"), Value::Array(Vec::new())]),
        ] {
            assert_eq!(read(&odd), None, "{odd:?}");
        }
    }

    #[test]
    fn what_a_replica_has_answered_is_refused() {
        let role = |role| writable(&text(&format!("# Replication\r\nrole:{role}\r\n")));
        assert!(matches!(role("slave"), Err(Failure::WrongNode(_))));
        assert_eq!(role("master"), Ok(()));
    }

    #[test]
    fn looks_at_as_many_keys_as_it_takes_and_no_more_than_may_be() {
        assert_eq!(count(100, 0, 0), 94);
        assert_eq!(count(1, 0, 0), MIN_KEYS_PER_STEP);
        assert_eq!(count(50, 50, 100), 94);
        assert_eq!(count(1, 99, 200), 2);
        assert_eq!(count(1, 100, 100), 1);
        assert_eq!(count(100, 0, 100), MAX_KEYS_PER_STEP);
        assert_eq!(count(1_000, 0, 0), MAX_KEYS_PER_STEP);
    }

    #[test]
    fn looks_at_fewer_when_too_much_was_found_and_at_least_at_one() {
        assert_eq!(narrower(94, 90, 100), 79);
        assert_eq!(narrower(16, 1, 16), 1);
        assert_eq!(narrower(2, 1, 3), 1);
        for (count, wanted, found) in [(2, 1, 2), (512, 511, 512), (512, 1, 513)] {
            assert!((1..count).contains(&narrower(count, wanted, found)));
        }
    }
}
