//! Calls `quorum_renew.lua`.

use crate::{
    lock::{TokenHash, Ttl},
    store::{
        StoreError,
        contract::{Confirmation, Loss, Renewal, Renewer},
        redis::{
            client::calls::{MarkedRenewal, Marks, ScriptCall, TOMBSTONE_MS},
            keys::Keys,
        },
    },
};

use super::super::{node::Node, record::millis, scripts::fill_lease_keys};

// === impl Node ===

impl Node {
    pub(in super::super) async fn renew(
        &self,
        marks: &Marks,
        keys: &Keys,
        renewer: Renewer,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        let mut marked = MarkedRenewal::new(marks, keys.name(), token);
        let token = token.to_string();
        let mut reply = loop {
            let fill = |command: &mut ScriptCall, _| {
                fill_who(command, keys, renewer, &token, ttl);
                command.arg(marked.named()).arg(&*marked.leaves(ttl));
            };
            let answer = self.run(&self.scripts.renew, keys, &token, fill).await;
            if let Some(reply) = marked.answered(answer)? {
                break reply;
            }
        };
        match reply.kind() {
            "renewed" => {
                let held = reply.lease(keys)?;
                let margin = reply.integer().and_then(millis);
                marked.keep(held.expires_in);
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

fn fill_who(
    command: &mut ScriptCall,
    keys: &Keys,
    renewer: Renewer,
    token: &str,
    ttl: Option<Ttl>,
) {
    fill_lease_keys(command, keys).arg(token);
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
