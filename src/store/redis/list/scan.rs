//! One step of a scan through the keys of a server.

use std::sync::Arc;

use bb8_redis::redis::{Pipeline, Value};
use sha2::{Digest, Sha256};

use crate::{
    lock::LockName,
    store::{StoreError, Unavailability, Uncertainty},
};

use super::super::{
    client::{answered, dispatch::Dispatch, failure::Failure, run::RunId, shard::Shard},
    health::retry::RetryPolicy,
    keys::Keys,
};

/// What one step has found.
#[derive(Debug)]
pub(crate) struct Step {
    /// The locks, each at least once.
    pub(crate) names: Vec<LockName>,
    /// Where the next step begins; 0: this was the last.
    pub(crate) next: u64,
    /// Which run of the server it was.
    pub(crate) run: u32,
}

// === impl Dispatch ===

impl Dispatch {
    /// Looks for locks from a place on, among about as many keys as `count` says. It changes nothing,
    /// so that asking again is safe.
    pub(crate) async fn scan(
        &self,
        shard: &Arc<Shard>,
        from: u64,
        pattern: &str,
        count: usize,
    ) -> Result<Step, StoreError> {
        let mut retry = RetryPolicy::new();
        loop {
            match self.scan_once(shard, from, pattern, count).await {
                Ok(step) => return Ok(step),
                Err(failure) => retry.pause_or_fail(failure).await?,
            }
        }
    }

    async fn scan_once(
        &self,
        shard: &Arc<Shard>,
        from: u64,
        pattern: &str,
        count: usize,
    ) -> Result<Step, Failure> {
        let mut commands = Pipeline::with_capacity(3);
        commands.cmd("INFO").arg("server");
        // A replica answers by its own data, and does not know who holds a lock now.
        commands.cmd("INFO").arg("replication");
        commands.cmd("SCAN").arg(from);
        commands.arg("MATCH").arg(pattern).arg("COUNT").arg(count);
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

/// Refuses what a replica has answered, going by its INFO on replication.
pub(crate) fn writable(replication: &Value) -> Result<(), Failure> {
    let Value::BulkString(info) = replication else {
        return Err(unexpected());
    };
    if is_replica(&String::from_utf8_lossy(info)) {
        let why = "READONLY: this server is a replica".to_owned();
        return Err(Failure::WrongNode(Unavailability::Refused(why)));
    }
    Ok(())
}

fn is_replica(info: &str) -> bool {
    info.lines().any(|line| line == "role:slave")
}

/// What SCAN answered: where it goes on, and keys.
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

/// Enough of a run's id to tell it from another.
fn short(run: &str) -> u32 {
    let digest: [u8; 32] = Sha256::digest(run).into();
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

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
    fn a_replica_is_known_by_its_role() {
        assert!(is_replica(
            "# Replication\r\nrole:slave\r\nmaster_host:a\r\n"
        ));
        assert!(!is_replica(
            "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n"
        ));
    }
}
