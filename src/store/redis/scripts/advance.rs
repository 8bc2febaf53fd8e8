//! Calls `advance.lua`.

use tokio::time::Duration;

use crate::store::StoreError;

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch},
        keys::Keys,
        queue::gateway::RedisGateway,
    },
    Scripts, queueing,
};

/// What became of a lock whose lease should have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Advance {
    /// Somebody holds it, for this long; `None`: without an expiry.
    Held(Option<Duration>),
    /// It was free, and somebody was queued for it.
    Passed,
    /// It is free, and nobody is queued for it who is alive.
    Idle,
}

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn advance(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
    ) -> Result<Advance, StoreError> {
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(keys.fence());
            command.arg(queueing::gateway(keys, gateway));
        };
        let run = dispatch.run(&self.advance, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        gateway.ingest(keys, reply.news()?);
        match reply.kind() {
            "held" => {
                let left = reply.rest().ok_or_else(|| reply.unexpected())?;
                Ok(Advance::Held(left))
            }
            "passed" => Ok(Advance::Passed),
            "idle" => Ok(Advance::Idle),
            _ => Err(reply.refusal(keys)),
        }
    }
}
