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
        keys::Keys,
    },
    Scripts,
    script::TOMBSTONE_MS,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn release(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(&token).arg(TOMBSTONE_MS);
        };
        let run = dispatch.run(&self.release, keys, &token, fill);
        let Answer { mut reply, earlier } = run.await?;
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
