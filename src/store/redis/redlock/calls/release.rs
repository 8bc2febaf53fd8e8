//! Calls `quorum_release.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::{KeeperId, TokenHash},
    store::{StoreError, contract::Loss},
};

use super::super::{
    super::{dispatch::DispatchReply, keys::Keys, scripts::TOMBSTONE_MS},
    node::Node,
};

/// What became of a lease at one node that was to release it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum NodeRelease {
    /// It was there, and this has ended it.
    Released,
    /// It was there, and a break has ended it. Whether somebody else has the lock there now.
    Broken { held: bool },
    /// It was not there.
    Lost(Loss),
    /// Another keeper goes on with it.
    Adopted,
}

// === impl Node ===

impl Node {
    pub(in super::super) async fn release(
        &self,
        keys: &Keys,
        keeper: Option<KeeperId>,
        token: &TokenHash,
    ) -> Result<NodeRelease, StoreError> {
        let token = token.to_string();
        let keeper = keeper.map(|keeper| keeper.to_string()).unwrap_or_default();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(keys.wanted());
            command.arg(&token).arg(TOMBSTONE_MS).arg(&keeper);
        };
        let run = self.run(&self.scripts.release, keys, &token, fill);
        let DispatchReply { mut reply, earlier } = run.await?;
        let loss = match reply.kind() {
            "released" => return Ok(NodeRelease::Released),
            "adopted" => return Ok(NodeRelease::Adopted),
            "another" => Loss::HeldByAnother,
            "free" => Loss::Free,
            // Not by a copy of this command: that would have released it.
            "broken" => match (reply.integer(), reply.integer()) {
                (Some(held @ (0 | 1)), Some(1)) => {
                    return Ok(NodeRelease::Broken { held: held == 1 });
                }
                (Some(held @ (0 | 1)), Some(0)) => {
                    return Ok(NodeRelease::Lost(Loss::Broken { held: held == 1 }));
                }
                _ => return Err(reply.unexpected()),
            },
            "layout" => return Err(reply.layout(keys)),
            _ => return Err(reply.unexpected()),
        };
        match earlier {
            None => Ok(NodeRelease::Lost(loss)),
            // Whether it was lost before, or released by the copy whose reply was lost, nobody can
            // tell.
            Some(unknown) => Err(unknown.into()),
        }
    }
}
