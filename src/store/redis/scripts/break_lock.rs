//! Calls `break.lua`.

use crate::{
    lock::{BreakTarget, Token},
    store::StoreError,
};

use super::{
    super::{
        client::{
            calls::ScriptCall,
            dispatch::{Dispatch, Sending},
        },
        keys::Keys,
        queue::gateway::RedisGateway,
    },
    Scripts, queueing,
};

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum BreakResult {
    /// It was broken, by this command or an earlier copy of it.
    Broken,
    /// It does not hold the lock any more.
    Changed,
}

// === impl Scripts ===

impl Scripts {
    /// Breaks what is meant.
    pub(in crate::store::redis) async fn break_lock(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
        target: BreakTarget,
    ) -> Result<BreakResult, StoreError> {
        let nonce = Token::random().hash().to_string();
        let (fence, mark) = match target {
            BreakTarget::Lease(fence) => (format!("{:016}", fence.get()), String::new()),
            BreakTarget::All => unreachable!("looked at first"),
            BreakTarget::Foreign(mark) => (String::new(), mark.to_string()),
        };
        let fill = |command: &mut ScriptCall, sending| {
            queueing::fill(command, keys, gateway, &nonce);
            let late = u8::from(sending == Sending::Again);
            command.arg(&fence).arg(&mark).arg(late);
        };
        let run = dispatch.run(&self.break_lock, keys, &nonce, fill);
        let mut reply = run.await?.reply;
        gateway.ingest(keys, reply.news()?);
        match reply.kind() {
            "broken" => Ok(BreakResult::Broken),
            "changed" => Ok(BreakResult::Changed),
            _ => Err(reply.unexpected()),
        }
    }
}
