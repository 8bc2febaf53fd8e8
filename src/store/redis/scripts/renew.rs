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
        let mut answered = None;
        let mut reply = loop {
            let fill = |command: &mut Cmd, _| {
                fill_who(command, keys, renewer, &token, ttl);
                match (&answered, ttl) {
                    (Some(mark), _) => command.arg(1).arg(gateway.id.as_str()).arg(mark),
                    // Each copy has a mark of its own: that of one which nobody has heard of is
                    // never asked with again.
                    (None, Some(_)) => command.arg(0).arg(gateway.id.as_str()).arg(mark()),
                    (None, None) => command.arg(0).arg(gateway.id.as_str()).arg(""),
                };
            };
            let mut reply = dispatch.run(&self.renew, keys, &token, fill).await?.reply;
            if reply.kind() != "sooner" || answered.is_some() {
                break reply;
            }
            answered = Some(reply.text().ok_or_else(|| reply.unexpected())?);
        };
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

fn fill_who(command: &mut Cmd, keys: &Keys, renewer: Renewer, token: &str, ttl: Option<Ttl>) {
    for key in [
        keys.lock(),
        keys.info(),
        keys.ended(),
        keys.queue(),
        keys.waiters(),
    ] {
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

/// Tells copies of a command apart.
fn mark() -> String {
    format!("{:016x}", getrandom::u64().unwrap_or_default())
}
