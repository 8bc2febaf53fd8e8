//! Calls `release.lua`.

use crate::{
    lock::{KeeperId, TokenHash},
    store::{
        StoreError,
        contract::{Loss, Release},
    },
};

use super::{
    super::{
        client::{
            calls::ScriptCall,
            dispatch::{Dispatch, DispatchReply},
        },
        keys::Keys,
        queue::gateway::RedisGateway,
        records::id,
    },
    Scripts, queueing,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn release(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
        keeper: Option<KeeperId>,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        let id = id(token);
        let fill = |command: &mut ScriptCall, _| {
            queueing::fill(command, keys, gateway, &id);
            if let Some(keeper) = keeper {
                command.arg(keeper.to_string());
            }
        };
        let run = dispatch.run(&self.release, keys, &id, fill);
        let DispatchReply { mut reply, earlier } = run.await?;
        gateway.ingest(keys, reply.news()?);
        let loss = match reply.kind() {
            "released" => return Ok(Release::Released),
            "adopted" => return Ok(Release::Adopted),
            "another" => Loss::HeldByAnother,
            "free" => Loss::Free,
            // Not by a copy of this command: that would have released it.
            "broken" => return Ok(Release::Lost(reply.broken()?)),
            "overdue" => reply.broken()?,
            _ => return Err(reply.unexpected()),
        };
        match earlier {
            None => Ok(Release::Lost(loss)),
            // Whether it was lost before, or released by the copy whose reply was lost, nobody can
            // tell.
            Some(unknown) => Err(unknown.into()),
        }
    }
}
