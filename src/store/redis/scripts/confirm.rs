//! Calls `confirm.lua`.

use crate::{
    lock::TokenHash,
    store::{StoreError, contract::Confirmation},
};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch, run::RunId},
        keys::Keys,
        records::id,
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
    ) -> Result<(Confirmation, Option<RunId>), StoreError> {
        let id = id(token);
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(keys.gateway()).arg(&id);
        };
        let answer = dispatch.run(&self.confirm, keys, &id, fill);
        let mut reply = answer.await?.reply;
        let run = reply.run().cloned();
        let confirmation = match reply.kind() {
            "confirmed" => Confirmation::Confirmed(reply.held(keys)?),
            "lost" => Confirmation::Lost,
            "superseded" => Confirmation::Superseded,
            _ => return Err(reply.unexpected()),
        };
        Ok((confirmation, run))
    }
}
