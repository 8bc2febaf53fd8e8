//! Calls `leave.lua`.

use bb8_redis::redis::Cmd;
use tokio::time::Duration;

use crate::{
    lock::TokenHash,
    store::{StoreError, contract::Leaving},
};

use super::{
    super::{dispatch::Dispatch, gateway::Gateway, keys::Keys},
    Scripts, queueing,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn leave(
        &self,
        dispatch: &Dispatch,
        gateway: &Gateway,
        keys: &Keys,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            queueing::fill(command, keys, gateway, &token);
            match keep_for.and_then(|keep| u64::try_from(keep.as_millis()).ok()) {
                Some(ms) => command.arg(ms),
                None => command.arg(""),
            };
        };
        let run = dispatch.run(&self.leave, keys, &token, fill);
        let mut reply = run.await?.reply;
        gateway.hear(keys, reply.news()?);
        match reply.kind() {
            "left" => Ok(Leaving::Left(reply.contention(keys)?)),
            "granted" => {
                let lease = reply.lease(keys)?;
                gateway.floors.raise(keys.slot(), lease.fence);
                Ok(Leaving::Granted(lease))
            }
            "superseded" => Ok(Leaving::Superseded),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
