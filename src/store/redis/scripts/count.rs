//! Calls `count.lua`.

use crate::store::{StoreError, contract::INSPECTED_WAITERS};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch},
        keys::Keys,
    },
    Scripts,
};

// === impl Scripts ===

impl Scripts {
    /// How many wait for a lock, by the same look at the first of them as an inspect takes.
    pub(in crate::store::redis) async fn count(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
    ) -> Result<u64, StoreError> {
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(keys.wait());
            command.arg(INSPECTED_WAITERS);
        };
        let run = dispatch.run(&self.count, keys, keys.wait(), fill);
        let mut reply = run.await?.reply;
        reply
            .count()
            .filter(|_| reply.kind() == "counted")
            .ok_or_else(|| reply.unexpected())
    }
}
