//! Calls `give_back.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::TokenHash,
    store::{StoreError, contract::GiveBack},
};

use super::{
    super::{dispatch::Dispatch, keys::Keys},
    Scripts,
    script::TOMBSTONE_MS,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn give_back(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<GiveBack, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(&token).arg(TOMBSTONE_MS);
        };
        let run = dispatch.run(&self.give_back, keys, &token, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "given_back" => Ok(GiveBack::GivenBack),
            // A lease that was answered again is not this attempt's any more.
            "kept" | "nothing" => Ok(GiveBack::NothingHeld),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
