//! Calls `lapse.lua`.

use crate::{lock::TokenHash, store::StoreError};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch},
        keys::Keys,
        queue::{gateway::RedisGateway, timers::OrphanKind},
        records::id,
    },
    Scripts,
};

// === impl Scripts ===

impl Scripts {
    /// Gives up the place of an attempt if it was kept until now. Answers whether the lock may pass on because of that.
    pub(in crate::store::redis) async fn lapse(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<bool, StoreError> {
        let id = id(token);
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(&id).arg(gateway.id.as_str());
        };
        let answer = dispatch.run(&self.lapse, keys, &id, fill).await;
        // If the server does not answer, the next one may still have the place.
        if !(answer.as_ref()).is_ok_and(|answer| answer.reply.kind() == "kept") {
            let place = OrphanKind::Departed(None, None);
            gateway.departures.add(keys.name(), *token, place);
        }
        let mut reply = answer?.reply;
        match reply.kind() {
            "lapsed" => Ok(reply.integer() == Some(1)),
            "kept" => Ok(false),
            _ => Err(reply.unexpected()),
        }
    }
}
