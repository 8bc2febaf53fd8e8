//! Calls `ask.lua`.

use crate::{lock::ReleaseRequest, store::StoreError};

use super::{
    super::{
        client::{
            calls::{ScriptCall, request_text},
            dispatch::Dispatch,
        },
        keys::Keys,
        queue::gateway::RedisGateway,
    },
    Scripts,
    break_lock::{BreakResult, ScriptTarget},
};

// === impl Scripts ===

impl Scripts {
    /// Asks for what is meant, which is no foreign client.
    pub(in crate::store::redis) async fn ask(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
        target: ScriptTarget,
        request: &ReleaseRequest,
    ) -> Result<BreakResult, StoreError> {
        let (fence, all) = match target {
            ScriptTarget::Lease(fence) => (fence, false),
            ScriptTarget::UpTo(fence) => (fence, true),
            ScriptTarget::Foreign(_) => return Ok(BreakResult::Changed),
        };
        let within = u64::try_from(request.within.as_millis()).unwrap_or(u64::MAX);
        let text = request_text(request);
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(keys.fence());
            command.arg(format!("{:016}", fence.get()));
            command.arg(gateway.id.as_str()).arg(within).arg(&text);
            if all {
                command.arg(1);
            }
        };
        let run = dispatch.run(&self.ask, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        gateway.ingest(keys, reply.news()?);
        match reply.kind() {
            "asked" => Ok(BreakResult::Broken),
            "changed" => Ok(BreakResult::Changed),
            _ => Err(reply.unexpected()),
        }
    }
}
