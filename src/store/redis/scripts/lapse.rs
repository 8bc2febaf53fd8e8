//! Calls `lapse.lua`.

use crate::{lock::TokenHash, store::StoreError};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch},
        keys::Keys,
        layout::id,
    },
    Scripts,
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
        let id = id(token);
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(&id);
        };
        let reply = dispatch.run(&self.lapse, keys, &id, fill).await?.reply;
        match reply.kind() {
            "lapsed" | "kept" => Ok(()),
            _ => Err(reply.unexpected()),
        }
    }
}
