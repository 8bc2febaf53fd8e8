//! Calls `quorum_break.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::{ForeignMark, TokenHash},
    store::StoreError,
};

use super::super::{
    super::{dispatch::Sending, keys::Keys, scripts::TOMBSTONE_MS},
    node::Node,
    nonce::Nonce,
};

/// What is to be broken. Nothing else is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum NodeTarget {
    /// The lease of this token.
    Lease(TokenHash),
    /// What a foreign client has written, by its mark.
    Foreign(ForeignMark),
}

/// What became of it at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum NodeBreak {
    /// It was broken.
    Broken,
    /// Another break has ended it there.
    Ended,
    /// It does not have the lock there (any more).
    Changed,
}

// === impl Node ===

impl Node {
    pub(in super::super) async fn break_lock(
        &self,
        keys: &Keys,
        nonce: &Nonce,
        node_target: &NodeTarget,
    ) -> Result<NodeBreak, StoreError> {
        let (token, mark) = match node_target {
            NodeTarget::Lease(token) => (token.to_string(), String::new()),
            NodeTarget::Foreign(mark) => (String::new(), mark.to_string()),
        };
        let fill = |command: &mut Cmd, sending| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(keys.wanted());
            command.arg(nonce.as_str()).arg(TOMBSTONE_MS);
            let late = u8::from(sending == Sending::Again);
            command.arg(&token).arg(&mark).arg(late);
        };
        let run = self.run(&self.scripts.break_lock, keys, nonce.as_str(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "broken" => Ok(NodeBreak::Broken),
            "ended" => Ok(NodeBreak::Ended),
            "changed" => Ok(NodeBreak::Changed),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
