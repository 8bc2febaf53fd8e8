//! Looks at locks that a scan has found, many with one batch of plain reads.
//!
//! A script for each lock would cost the server several times as much. No two of the reads happen
//! at one instant, and they need not: a token hash is of one lease only, so if the lock had it before
//! the record was read, and the record belongs to it, then that lease held the lock all the while and
//! what was left of the lock, read in between, was left of that lease. Whatever looks otherwise is left
//! to `list.lua`, which sees everything at once.

use std::sync::Arc;

use bb8_redis::redis::{Pipeline, ServerError, Value};

use crate::{
    lock::HeldLease,
    store::{StoreError, Uncertainty},
};

use super::{
    client::answered,
    dispatch::Dispatch,
    failure::Failure,
    keys::Keys,
    reading::Patience,
    scan::writable,
    scripts::{RECORD_LAYOUT, TOLD, told_lease},
    shard::Shard,
};

/// What was seen of a lock and its queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Looked {
    pub(super) look: Look,
    /// How many wait; `None` if that is to be looked up elsewhere.
    pub(super) waiters: Option<u64>,
}

/// What was seen of a lock.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// A lease of ours holds it.
    Lease(HeldLease),
    /// Nobody does.
    Nobody,
    /// Somebody else, or it changed meanwhile: to be looked at with a script.
    Unclear,
}

/// The last byte that is read of a lock: a token hash has one fewer, and what is longer is none.
/// What a foreign client has written may be of any length.
const LAST_BYTE: usize = 64;
/// How many commands are sent for a lock.
const COMMANDS: usize = 4;

// === impl Dispatch ===

impl Dispatch {
    /// Looks at locks, all of them on the server that the scan has found them on.
    pub(super) async fn look(
        &self,
        shard: &Arc<Shard>,
        batch: &[Keys],
    ) -> Result<Vec<Looked>, StoreError> {
        let commands = commands(batch);
        let mut patience = Patience::new();
        loop {
            let replies = self.batch_to(shard, &commands).await;
            match replies.and_then(|replies| read(&replies)) {
                Ok(looks) => return Ok(looks),
                Err(failure) => patience.bear(failure).await?,
            }
        }
    }
}

/// What the replies to [`commands`] say.
fn read(replies: &[Value]) -> Result<Vec<Looked>, Failure> {
    for error in replies.iter().filter_map(server_error) {
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
    let now = milliseconds(time).ok_or_else(unexpected)?;
    let (seen, []) = seen.as_chunks::<COMMANDS>() else {
        return Err(unexpected());
    };
    Ok(seen.iter().map(|seen| judge(seen, now)).collect())
}

fn commands(batch: &[Keys]) -> Pipeline {
    let mut commands = Pipeline::with_capacity(COMMANDS * batch.len() + 2);
    commands.cmd("TIME");
    for keys in batch {
        commands.cmd("GETRANGE").arg(keys.lock());
        commands.arg(0).arg(LAST_BYTE);
        commands.cmd("PTTL").arg(keys.lock());
        commands.cmd("HMGET").arg(keys.info());
        commands.arg("lock").arg("v").arg(&TOLD);
        commands.cmd("ZCARD").arg(keys.queue());
    }
    commands.cmd("INFO").arg("replication");
    commands
}

fn judge([value, left, record, queue]: &[Value; COMMANDS], now: i64) -> Looked {
    Looked {
        look: judge_lock([value, left, record], now),
        waiters: match queue {
            Value::Int(count) => Some(count.unsigned_abs()),
            Value::ServerError(error) if matches!(answered(error), Failure::Elsewhere(_)) => None,
            // A key of another type, in which nobody stands; whoever asks about the lock is told.
            _ => Some(0),
        },
    }
}

fn judge_lock([value, left, record]: [&Value; 3], now: i64) -> Look {
    let lease = || {
        let (Value::BulkString(value), Value::Int(left), Value::Array(record)) =
            (value, left, record)
        else {
            return None;
        };
        let [
            Value::BulkString(lock),
            Value::BulkString(layout),
            told @ ..,
        ] = record.as_slice()
        else {
            return None;
        };
        let is_of_it = lock == value && layout == RECORD_LAYOUT && *left >= 0;
        is_of_it.then(|| told_lease(told, *left, now)).flatten()
    };
    match left {
        // There is no such key; an empty one would also be read as nothing.
        Value::Int(-2) => Look::Nobody,
        _ => lease().map_or(Look::Unclear, Look::Lease),
    }
}

fn server_error(reply: &Value) -> Option<&ServerError> {
    match reply {
        Value::ServerError(error) => Some(error),
        _ => None,
    }
}

/// The milliseconds of a TIME.
fn milliseconds(time: &Value) -> Option<i64> {
    let Value::Array(parts) = time else {
        return None;
    };
    let [Value::BulkString(seconds), Value::BulkString(micros)] = parts.as_slice() else {
        return None;
    };
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<i64>().ok();
    number(seconds)?
        .checked_mul(1_000)?
        .checked_add(number(micros)? / 1_000)
}

fn unexpected() -> Failure {
    Failure::Unknown(Uncertainty::UnexpectedReply("no look at locks".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn record(lock: &str, layout: &str) -> Value {
        let told = ["7", "30000", "900", "", "ci", r#"{"a":"b"}"#].map(text);
        Value::Array([&[text(lock), text(layout)], &told[..]].concat())
    }

    #[test]
    fn a_lease_is_believed_if_the_record_is_of_what_holds_the_lock() {
        let seen = |value, left, record: Value| {
            judge_lock([&text(value), &Value::Int(left), &record], 1_000)
        };
        let Look::Lease(lease) = seen("hash", 500, record("hash", "1")) else {
            panic!("no lease");
        };
        assert_eq!((lease.fence.get(), lease.expires_in.as_millis()), (7, 500));
        assert_eq!(
            (lease.held_for.as_millis(), lease.hold_expires_in),
            (100, None)
        );
        assert_eq!(lease.owner.unwrap().as_str(), "ci");
        for (value, left, record) in [
            // Passed on between two reads.
            ("hash", 500, record("next", "1")),
            ("", 500, record("hash", "1")),
            // Written by another hand, by a newer version, or made to last for ever.
            ("foreign", 500, Value::Array(vec![Value::Nil; 8])),
            ("hash", 500, record("hash", "2")),
            ("hash", -1, record("hash", "1")),
            (
                "hash",
                500,
                Value::Array(vec![text("hash"), text("1"), text("odd")]),
            ),
            ("hash", 500, Value::Nil),
        ] {
            let what = format!("{value} {left} {record:?}");
            assert_eq!(seen(value, left, record), Look::Unclear, "{what}");
        }
        // It has ended since it was read.
        assert_eq!(seen("hash", -2, record("hash", "1")), Look::Nobody);
    }

    fn replies(seen: &[Value; 4], role: &str) -> Vec<Value> {
        let time = Value::Array(["1", "0"].map(text).into());
        let role = text(&format!("# Replication\r\nrole:{role}\r\n"));
        [&[time], &seen[..], &[role]].concat()
    }

    fn error(line: &str) -> Value {
        let parsed = bb8_redis::redis::parse_redis_value(format!("-{line}\r\n").as_bytes());
        parsed.unwrap()
    }

    #[test]
    fn what_a_replica_or_a_server_that_refuses_has_answered_is_not_believed() {
        let seen = || {
            let waiters = Value::Int(3);
            [text("hash"), Value::Int(500), record("hash", "1"), waiters]
        };
        let of_master = read(&replies(&seen(), "master")).unwrap();
        let [
            Looked {
                look: Look::Lease(_),
                waiters: Some(3),
            },
        ] = of_master[..]
        else {
            panic!("{of_master:?}");
        };
        let replica = read(&replies(&seen(), "slave"));
        assert!(matches!(replica, Err(Failure::WrongNode(_))), "{replica:?}");
        let refused = [
            error("NOPERM no getrange"),
            Value::Int(500),
            record("hash", "1"),
            Value::Int(0),
        ];
        let refused = read(&replies(&refused, "master"));
        assert!(matches!(refused, Err(Failure::Refused(_))), "{refused:?}");
        let odd = [
            error("WRONGTYPE a list"),
            Value::Int(500),
            record("hash", "1"),
            error("WRONGTYPE a list"),
        ];
        let unclear = Looked {
            look: Look::Unclear,
            waiters: Some(0),
        };
        assert_eq!(read(&replies(&odd, "master")), Ok(vec![unclear]));
        assert!(read(&[Value::Nil]).is_err());
    }

    #[test]
    fn a_time_is_read_in_milliseconds() {
        let time = |parts: &[&str]| Value::Array(parts.iter().map(|it| text(it)).collect());
        assert_eq!(
            milliseconds(&time(&["1795170000", "123456"])),
            Some(1_795_170_000_123)
        );
        for odd in [&["x", "1"][..], &["1"], &["9223372036854775807", "0"]] {
            assert_eq!(milliseconds(&time(odd)), None, "{odd:?}");
        }
    }
}
