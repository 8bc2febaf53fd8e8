//! Calls `lapse.lua`.

use bb8_redis::redis::Cmd;

use crate::{lock::TokenHash, store::StoreError};

use super::{
    super::{dispatch::Dispatch, keys::Keys},
    Scripts,
    script::TOMBSTONE_MS,
};

// === impl Scripts ===

impl Scripts {
    /// Gives up the place of an attempt if it was kept until now.
    pub(in crate::store::redis) async fn lapse(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<(), StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.ended(), keys.queue(), keys.waiters()] {
                command.arg(key);
            }
            command.arg(&token).arg(TOMBSTONE_MS);
        };
        let reply = dispatch.run(&self.lapse, keys, &token, fill).await?.reply;
        match reply.kind() {
            "lapsed" | "kept" => Ok(()),
            _ => Err(reply.unexpected()),
        }
    }
}
