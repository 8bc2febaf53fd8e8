//! Calls `confirm.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::TokenHash,
    store::{StoreError, contract::Confirmation},
};

use super::{
    super::{dispatch::Dispatch, keys::Keys, run::Told},
    Scripts,
    script::TOMBSTONE_MS,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn confirm(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<(Confirmation, Told), StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended(), keys.gateway()] {
                command.arg(key);
            }
            command.arg(&token).arg(TOMBSTONE_MS);
        };
        let run = dispatch.run(&self.confirm, keys, &token, fill);
        let mut reply = run.await?.reply;
        let told = reply.told();
        let confirmation = match reply.kind() {
            "confirmed" => Confirmation::Confirmed(reply.lease(keys)?),
            "lost" => Confirmation::Lost,
            "superseded" => Confirmation::Superseded,
            "layout" => return Err(reply.layout(keys)),
            _ => return Err(reply.unexpected()),
        };
        Ok((confirmation, told))
    }
}
