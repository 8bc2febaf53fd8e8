//! Calls `quorum_renew.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::{TokenHash, Ttl},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Confirmation, Loss, Renewal, Renewer},
        redis::{keys::Keys, queue::gateway::RedisGateway, scripts::TOMBSTONE_MS},
    },
};

use super::super::{super::scripts::Reply, node::Node};

/// How often a renewal is asked for: each time somebody else has renewed the lease in between.
const TRIES: usize = 16;

// === impl Node ===

impl Node {
    pub(in super::super) async fn renew(
        &self,
        gateway: &RedisGateway,
        keys: &Keys,
        renewer: Renewer,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        let (lease, token) = (token, token.to_string());
        let (mut named, mut earlier) = (gateway.marks.take(lease).unwrap_or_default(), None);
        let (mut reply, left) = 'renewed: {
            for tried in 0..TRIES {
                if tried > 1 {
                    gateway.marks.contended(lease);
                }
                // Of all copies that name a mark; one that names none has a mark of its own, so that
                // the mark of a copy which nobody has heard of is never named.
                let leaves = mark();
                let fill = |command: &mut Cmd, _| {
                    fill_who(command, keys, renewer, &token, ttl);
                    command.arg(&named);
                    match (named.is_empty(), ttl) {
                        (false, _) => command.arg(&leaves),
                        (true, Some(_)) => command.arg(mark()),
                        (true, None) => command.arg(""),
                    };
                };
                let run = self.run(&self.scripts.renew, keys, &token, fill).await;
                let mut answer = run.map_err(|error| known(error, earlier.as_ref()))?;
                earlier = answer.earlier.or(earlier);
                if answer.reply.kind() != "marked" {
                    break 'renewed (answer.reply, leaves);
                }
                named = answer
                    .reply
                    .text()
                    .ok_or_else(|| answer.reply.unexpected())?;
            }
            return Err(known(Unavailability::Overloaded.into(), earlier.as_ref()));
        };
        match reply.kind() {
            "renewed" => {
                let held = reply.lease(keys)?;
                if !named.is_empty() {
                    gateway.marks.keep(lease, left, held.expires_in);
                }
                // It may end sooner than those who wait here expected.
                gateway.watch_expiry(keys.name(), held.expires_in);
                Ok(Renewal::Renewed(held))
            }
            "adopted" => Ok(Renewal::Adopted),
            "another" => Ok(Renewal::Lost(Loss::HeldByAnother)),
            "free" => Ok(Renewal::Lost(Loss::Free)),
            "broken" => Ok(Renewal::Lost(broken(&mut reply)?)),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}

fn fill_who(command: &mut Cmd, keys: &Keys, renewer: Renewer, token: &str, ttl: Option<Ttl>) {
    for key in [keys.lock(), keys.info(), keys.ended()] {
        command.arg(key);
    }
    command.arg(token);
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

/// What is known of a renewal of which an earlier command may have been carried out.
fn known(error: StoreError, earlier: Option<&Uncertainty>) -> StoreError {
    match (error, earlier) {
        (StoreError::Unavailable(_), Some(unknown)) => unknown.clone().into(),
        (error, _) => error,
    }
}

/// Tells commands, and copies of a command, apart.
fn mark() -> String {
    format!("{:016x}", getrandom::u64().unwrap_or_default())
}

/// The loss of a lease that was broken.
fn broken(reply: &mut Reply) -> Result<Loss, StoreError> {
    match reply.integer() {
        Some(held @ (0 | 1)) => Ok(Loss::Broken { held: held == 1 }),
        _ => Err(reply.unexpected()),
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
        let fill = |command: &mut Cmd, _| {
            for key in [keys.lock(), keys.info(), keys.ended()] {
                command.arg(key);
            }
            command.arg(&token).arg(TOMBSTONE_MS);
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
