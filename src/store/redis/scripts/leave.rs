//! Calls `leave.lua`.

use tokio::time::Duration;

use crate::{
    lock::TokenHash,
    store::{StoreError, contract::Leaving},
};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch, run::RunId},
        keys::Keys,
        queue::{gateway::RedisGateway, timers::OrphanKind},
        records::id,
    },
    Scripts, queueing,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn leave(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<(Leaving, Option<RunId>), StoreError> {
        let id = id(token);
        let fill = |command: &mut ScriptCall, _| {
            queueing::fill(command, keys, gateway, &id);
            match keep_for.and_then(|keep| u64::try_from(keep.as_millis()).ok()) {
                Some(ms) => command.arg(ms),
                None => command.arg(""),
            };
        };
        let answer = dispatch.run(&self.leave, keys, &id, fill);
        let mut reply = answer.await?.reply;
        let run = reply.run().cloned();
        gateway.ingest(keys, reply.news()?);
        let leaving = match reply.kind() {
            "left" => {
                if keep_for.is_none() {
                    let place = OrphanKind::Departed(None, None);
                    gateway.departures.add(keys.name(), *token, place);
                }
                Leaving::Left(reply.contention(keys)?)
            }
            "granted" => {
                let lease = reply.held(keys)?;
                gateway.floors.raise(keys.slot(), lease.fence);
                Leaving::Granted(lease)
            }
            "superseded" => Leaving::Superseded,
            _ => return Err(reply.unexpected()),
        };
        Ok((leaving, run))
    }
}
