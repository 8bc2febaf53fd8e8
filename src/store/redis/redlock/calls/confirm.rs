//! Calls `quorum_confirm.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::TokenHash,
    store::{StoreError, contract::Confirmation},
};

use super::super::{
    super::{keys::Keys, scripts::TOMBSTONE_MS},
    node::Node,
};

// === impl Node ===

impl Node {
    pub(in super::super) async fn confirm(
        &self,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(&token).arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.confirm, keys, &token, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "confirmed" => Ok(Confirmation::Confirmed(reply.lease(keys)?)),
            "lost" => Ok(Confirmation::Lost),
            "superseded" => Ok(Confirmation::Superseded),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
