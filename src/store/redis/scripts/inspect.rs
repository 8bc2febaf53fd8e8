//! Calls `inspect.lua`.

use bb8_redis::redis::Cmd;

use crate::store::{
    StoreError,
    contract::{Holder, Inspection},
};

use super::{
    super::{dispatch::Dispatch, keys::Keys},
    Scripts,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn inspect(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
    ) -> Result<Inspection, StoreError> {
        let fill = |command: &mut Cmd, _| {
            command.arg(keys.lock()).arg(keys.info());
        };
        let run = dispatch.run(&self.inspect, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "free" => Ok(Inspection::Free),
            "held" => Ok(Inspection::Held(Holder::Lease(reply.lease(keys)?))),
            "foreign" => match reply.foreign() {
                Some(holder) => Ok(Inspection::Held(holder)),
                None => Err(reply.unexpected()),
            },
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
