//! Calls `confirm.lua`.

use crate::{
    lock::TokenHash,
    store::{StoreError, contract::Confirmation},
};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch, run::ReplyOrigin},
        keys::Keys,
        layout::id,
    },
    Scripts,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn confirm(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<(Confirmation, ReplyOrigin), StoreError> {
        let id = id(token);
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(keys.gateway()).arg(&id);
        };
        let run = dispatch.run(&self.confirm, keys, &id, fill);
        let mut reply = run.await?.reply;
        let origin = reply.origin();
        let confirmation = match reply.kind() {
            "confirmed" => Confirmation::Confirmed(reply.held(keys)?),
            "lost" => Confirmation::Lost,
            "superseded" => Confirmation::Superseded,
            _ => return Err(reply.unexpected()),
        };
        Ok((confirmation, origin))
    }
}
