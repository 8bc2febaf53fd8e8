//! Calls `quorum_renew.lua`.

use crate::{
    lock::TokenHash,
    store::{
        StoreError,
        contract::{Confirmation, Loss, Renewal, RenewalTtl, Renewer},
        redis::{
            client::calls::{ScriptCall, TOMBSTONE_MS},
            keys::Keys,
        },
    },
};

use super::super::{node::Node, record::millis, scripts::fill_lease_keys};

// === impl Node ===

impl Node {
    pub(in super::super) async fn renew(
        &self,
        keys: &Keys,
        renewer: Renewer,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut ScriptCall, _| {
            fill_lease_keys(command, keys).arg(&token);
            command
                .arg_ttl(ttl.asked)
                .arg_ttl(ttl.max)
                .arg(TOMBSTONE_MS);
            match renewer {
                Renewer::Bearer => command.arg("").arg(0),
                Renewer::Keeper(keeper) => command.arg(keeper.to_string()).arg(0),
                Renewer::Adopter(keeper) => command.arg(keeper.to_string()).arg(1),
            };
        };
        let run = self.run(&self.scripts.renew, keys, &token, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "renewed" => {
                let held = reply.lease(keys)?;
                let margin = reply.integer().and_then(millis);
                let margin = margin.ok_or_else(|| reply.unexpected())?;
                Ok(Renewal::Renewed(held, margin))
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

// === Confirm ===
//
// Calls `quorum_confirm.lua`.

// === impl Node ===

impl Node {
    pub(in crate::store::redis::redlock) async fn confirm(
        &self,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut ScriptCall, _| {
            fill_lease_keys(command, keys).arg(&token).arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.confirm, keys, &token, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "confirmed" => Ok(Confirmation::Confirmed(reply.lease(keys)?)),
            "lost" => Ok(Confirmation::Lost),
            "superseded" => Ok(Confirmation::Superseded),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
