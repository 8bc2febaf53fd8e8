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
pub(in super::super) struct ReplayRequest {
    /// The attempt that asks.
    pub(in super::super) asks: TokenHash,
    /// Under which idempotency key.
    pub(in super::super) key: IdempotencyHash,
    /// The lease.
    pub(in super::super) lease: TokenHash,
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum ReplayReply {
    /// The lease, and whether somebody may have heard of it before.
    Lease(Claim, Salt, bool),
    /// A newer request under the key keeps it.
    Superseded,
    /// It does not live there under this key.
    NotFound,
}

// === impl Node ===

impl Node {
    pub(in super::super) async fn replay(
        &self,
        keys: &Keys,
        request: &ReplayRequest,
    ) -> Result<ReplayReply, StoreError> {
        let asks = request.asks.to_string();
        let lease = request.lease.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(&asks).arg(hex::write(request.key.as_bytes()));
            command.arg(&lease).arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.replay, keys, &asks, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "replayed" => read(&mut reply, keys, request, true),
            "collected" => read(&mut reply, keys, request, false),
            "superseded" => Ok(ReplayReply::Superseded),
            "gone" => Ok(ReplayReply::NotFound),
            _ => Err(reply.unexpected()),
        }
    }
}

fn read(
    reply: &mut Reply,
    keys: &Keys,
    request: &ReplayRequest,
    delivered: bool,
) -> Result<ReplayReply, StoreError> {
    let left = reply.integer().and_then(|ms| u64::try_from(ms).ok());
    let salt = reply.text().as_deref().and_then(hex::read);
    let (Some(left), Some(salt)) = (left, salt) else {
        return Err(reply.unexpected());
    };
    let claim = Claim {
        token: request.lease,
        left: Duration::from_millis(left),
        lease: reply.lease(keys)?,
    };
    Ok(ReplayReply::Lease(claim, Salt::from_bytes(salt), delivered))
}
