//! Calls `renew.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::{TokenHash, Ttl},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Loss, Renewal, Renewer},
    },
};

use super::{
    super::{client::dispatch::Dispatch, keys::Keys, layout::id, queue::gateway::RedisGateway},
    Scripts,
};

/// How often a renewal is asked for: each time somebody else has renewed the lease in between.
const TRIES: usize = 16;

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn renew(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
        renewer: Renewer,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        let (lease, id) = (token, id(token));
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
                    command.arg(keys.lock()).arg(keys.fence()).arg(&id);
                    match ttl {
                        Some(ttl) => command.arg(ttl.as_millis()),
                        None => command.arg(""),
                    };
                    command.arg(&named).arg(gateway.id.as_str());
                    match (named.is_empty(), ttl) {
                        (false, _) => command.arg(&leaves),
                        (true, Some(_)) => command.arg(mark()),
                        (true, None) => command.arg(""),
                    };
                    match renewer {
                        Renewer::Bearer => command,
                        Renewer::Keeper(keeper) => command.arg(keeper.to_string()),
                        Renewer::Adopter(keeper) => command.arg(keeper.to_string()).arg(1),
                    };
                };
                let run = dispatch.run(&self.renew, keys, &id, fill).await;
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
                gateway.ingest(keys, reply.news()?);
                let held = reply.held(keys)?;
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
            "broken" => Ok(Renewal::Lost(reply.broken()?)),
            _ => Err(reply.unexpected()),
        }
    }
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
