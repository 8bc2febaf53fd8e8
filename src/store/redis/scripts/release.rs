//! Calls `release.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::TokenHash,
    store::{
        StoreError,
        contract::{Loss, Release},
    },
};

use super::{
    super::{
        dispatch::{Answer, Dispatch},
        gateway::Gateway,
        keys::Keys,
    },
    Scripts, queueing,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn release(
        &self,
        dispatch: &Dispatch,
        gateway: &Gateway,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| queueing::fill(command, keys, gateway, &token);
        let run = dispatch.run(&self.release, keys, &token, fill);
        let Answer { mut reply, earlier } = run.await?;
        gateway.hear(keys, reply.news()?);
        let loss = match reply.kind() {
            "released" => return Ok(Release::Released),
            "another" => Loss::HeldByAnother,
            "free" => Loss::Free,
            "layout" => return Err(reply.layout(keys)),
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
