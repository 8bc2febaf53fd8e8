//! Calls `renew.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::{TokenHash, Ttl},
    store::{
        StoreError,
        contract::{Loss, Renewal, Renewer},
    },
};

use super::{
    super::{dispatch::Dispatch, gateway::Gateway, keys::Keys},
    Scripts,
    script::TOMBSTONE_MS,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn renew(
        &self,
        dispatch: &Dispatch,
        gateway: &Gateway,
        keys: &Keys,
        renewer: Renewer,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            for key in [
                keys.lock(),
                keys.info(),
                keys.ended(),
                keys.queue(),
                keys.waiters(),
            ] {
                command.arg(key);
            }
            command.arg(&token);
            match ttl {
                Some(ttl) => command.arg(ttl.as_millis()),
                None => command.arg(""),
            };
            command.arg(TOMBSTONE_MS);
            match renewer {
                Renewer::Bearer => command.arg("").arg(0),
                Renewer::Keeper(keeper) => command.arg(keeper.to_string()).arg(0),
                Renewer::Adopter(keeper) => command.arg(keeper.to_string()).arg(1),
            };
            command.arg(gateway.id.as_str());
        };
        let mut reply = dispatch.run(&self.renew, keys, &token, fill).await?.reply;
        match reply.kind() {
            "renewed" => {
                gateway.hear(keys, reply.news()?);
                let lease = reply.lease(keys)?;
                // It may end sooner than those who wait here expected.
                gateway.expect_end(keys.name(), lease.expires_in);
                Ok(Renewal::Renewed(lease))
            }
            "adopted" => Ok(Renewal::Adopted),
            "another" => Ok(Renewal::Lost(Loss::HeldByAnother)),
            "free" => Ok(Renewal::Lost(Loss::Free)),
            "broken" => Ok(Renewal::Lost(reply.broken()?)),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
