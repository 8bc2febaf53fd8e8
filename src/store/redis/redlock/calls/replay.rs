//! Calls `replay.lua`.

use std::time::Duration;

use bb8_redis::redis::Cmd;

use crate::{
    lock::{IdempotencyHash, Salt, TokenHash},
    store::StoreError,
};

use super::super::{
    super::{
        keys::Keys,
        scripts::{Reply, TOMBSTONE_MS, hex},
    },
    claim::Claim,
    node::Node,
};

/// What is answered again.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Replaying {
    /// The attempt that asks.
    pub(in super::super) asks: TokenHash,
    /// Under which idempotency key.
    pub(in super::super) key: IdempotencyHash,
    /// The lease.
    pub(in super::super) lease: TokenHash,
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Replayed {
    /// The lease, and whether somebody may have heard of it before.
    Lease(Claim, Salt, bool),
    /// A newer request under the key keeps it.
    Superseded,
    /// It does not live there under this key.
    Gone,
}

// === impl Node ===

impl Node {
    pub(in super::super) async fn replay(
        &self,
        keys: &Keys,
        replaying: &Replaying,
    ) -> Result<Replayed, StoreError> {
        let asks = replaying.asks.to_string();
        let lease = replaying.lease.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(&asks).arg(hex::write(replaying.key.as_bytes()));
            command.arg(&lease).arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.replay, keys, &asks, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "replayed" => read(&mut reply, keys, replaying, true),
            "collected" => read(&mut reply, keys, replaying, false),
            "superseded" => Ok(Replayed::Superseded),
            "gone" => Ok(Replayed::Gone),
            _ => Err(reply.unexpected()),
        }
    }
}

fn read(
    reply: &mut Reply,
    keys: &Keys,
    replaying: &Replaying,
    heard: bool,
) -> Result<Replayed, StoreError> {
    let left = reply.integer().and_then(|ms| u64::try_from(ms).ok());
    let salt = reply.text().as_deref().and_then(hex::read);
    let (Some(left), Some(salt)) = (left, salt) else {
        return Err(reply.unexpected());
    };
    let claim = Claim {
        token: replaying.lease,
        left: Duration::from_millis(left),
        lease: reply.lease(keys)?,
    };
    Ok(Replayed::Lease(claim, Salt::from_bytes(salt), heard))
}
