//! Calls `break.lua`.

use crate::{
    lock::{FencingToken, ForeignMark, Token},
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

/// What is to be broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum ScriptTarget {
    /// The lease with this fencing token, whether it is alone or not.
    Lease(FencingToken),
    /// All that share the lock, up to this fencing token: a late copy must not break a newer one.
    UpTo(FencingToken),
    /// What a foreign client has written.
    Foreign(ForeignMark),
}

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
        target: ScriptTarget,
    ) -> Result<BreakResult, StoreError> {
        let nonce = Token::random().hash().to_string();
        let (fence, mark) = match target {
            ScriptTarget::Lease(fence) | ScriptTarget::UpTo(fence) => {
                (format!("{:016}", fence.get()), String::new())
            }
            ScriptTarget::Foreign(mark) => (String::new(), mark.to_string()),
        };
        let all = matches!(target, ScriptTarget::UpTo(_));
        let fill = |command: &mut ScriptCall, sending| {
            queueing::fill(command, keys, gateway, &nonce);
            let late = u8::from(sending == Sending::Again);
            command.arg(&fence).arg(&mark).arg(late);
            if all {
                command.arg(1);
            }
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
