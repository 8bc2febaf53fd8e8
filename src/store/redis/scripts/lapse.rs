//! Calls `lapse.lua`.

use crate::{lock::TokenHash, store::StoreError};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch},
        keys::Keys,
        layout::id,
        queue::gateway::RedisGateway,
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
        let mut reply = dispatch.run(&self.lapse, keys, &id, fill).await?.reply;
        match reply.kind() {
            "lapsed" => Ok(reply.integer() == Some(1)),
            "kept" => Ok(false),
            _ => Err(reply.unexpected()),
        }
    }
}
