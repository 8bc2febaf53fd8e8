//! Calls `list.lua`.

use crate::{
    lock::FencingToken,
    store::{StoreError, contract::Holder},
};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch},
        keys::Keys,
    },
    Scripts,
};

// === impl Scripts ===

impl Scripts {
    /// Shows who holds the lock, of those who share it at most so many, or the one with the fence if it is there. What this
    /// version does not understand, a key of another type or a record of another layout, is foreign without a mark.
    pub(in crate::store::redis) async fn list(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        most: usize,
        fence: Option<FencingToken>,
    ) -> Result<Option<Holder>, StoreError> {
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(most);
            if let Some(fence) = fence {
                command.arg(format!("{:016}", fence.get()));
            }
        };
        let run = dispatch.run(&self.list, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        if reply.kind() == "free" {
            return Ok(None);
        }
        let expires_in = reply.rest().ok_or_else(|| reply.unexpected())?;
        let foreign = |mark| Holder::Foreign { expires_in, mark };
        let holder = match reply.kind() {
            // What makes no lease was not written by us.
            "held" => Some(reply.read_held().map_or(foreign(None), Holder::Lease)),
            "shared" => reply.shared().map(Holder::Shared),
            "foreign" => reply.mark().map(|mark| foreign(Some(mark))),
            "odd" => Some(foreign(None)),
            _ => None,
        };
        holder.map(Some).ok_or_else(|| reply.unexpected())
    }
}
