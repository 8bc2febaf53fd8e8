//! Calls `view.lua`.

use std::time::Duration;

use crate::{
    lock::{ForeignMark, IdempotencyHash, Salt, TokenHash},
    store::{
        StoreError,
        redis::{
            client::calls::{Reply, ScriptCall, TOMBSTONE_MS, hex},
            keys::Keys,
        },
    },
};

use super::super::{claim::Claim, node::Node, scripts::fill_lease_keys};

/// Who has a lock at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum NodeView {
    /// A lease, or somebody's try.
    Claim(Claim),
    /// A foreign client, with what is left, and a mark of what it has written.
    Foreign(Option<Duration>, ForeignMark),
    /// Nobody.
    Nobody,
}

// === impl Node ===

impl Node {
    pub(in super::super) async fn view(&self, keys: &Keys) -> Result<NodeView, StoreError> {
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(keys.info());
        };
        let run = self.run(&self.scripts.view, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "held" => Ok(NodeView::Claim(Claim::read(&mut reply, keys)?)),
            "foreign" => {
                let left = reply.integer().ok_or_else(|| reply.unexpected())?;
                let mark = reply.mark().ok_or_else(|| reply.unexpected())?;
                let left = u64::try_from(left).ok().map(Duration::from_millis);
                Ok(NodeView::Foreign(left, mark))
            }
            "free" => Ok(NodeView::Nobody),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}

// === Replay ===
//
// Calls `replay.lua`.

/// What is answered again.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::redis::redlock) struct ReplayRequest {
    /// The attempt that asks.
    pub(in crate::store::redis::redlock) asks: TokenHash,
    /// Under which idempotency key.
    pub(in crate::store::redis::redlock) key: IdempotencyHash,
    /// The lease.
    pub(in crate::store::redis::redlock) lease: TokenHash,
}

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::store::redis::redlock) enum ReplayReply {
    /// The lease, and whether it may have been delivered to another attempt before.
    Lease(Claim, Salt, bool),
    /// A newer request under the key keeps it.
    Superseded,
    /// It does not live there under this key.
    NotFound,
}

// === impl Node ===

impl Node {
    pub(in crate::store::redis::redlock) async fn replay(
        &self,
        keys: &Keys,
        request: &ReplayRequest,
    ) -> Result<ReplayReply, StoreError> {
        let asks = request.asks.to_string();
        let lease = request.lease.to_string();
        let fill = |command: &mut ScriptCall, _| {
            fill_lease_keys(command, keys)
                .arg(&asks)
                .arg(hex::write(request.key.as_bytes()));
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
