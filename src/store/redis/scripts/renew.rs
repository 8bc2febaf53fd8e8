//! Calls `renew.lua`.

use crate::{
    lock::{TokenHash, Ttl},
    store::{
        StoreError,
        contract::{Loss, Renewal, Renewer},
    },
};

use super::{
    super::{
        client::{
            calls::{MarkedRenewal, ScriptCall},
            dispatch::Dispatch,
        },
        keys::Keys,
        layout::id,
        queue::gateway::RedisGateway,
    },
    Scripts,
};

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
        let id = id(token);
        let mut marked = MarkedRenewal::new(&gateway.marks, keys.name(), token);
        let mut reply = loop {
            let fill = |command: &mut ScriptCall, _| {
                command.arg(keys.lock()).arg(keys.fence()).arg(&id);
                match ttl {
                    Some(ttl) => command.arg(ttl.as_millis()),
                    None => command.arg(""),
                };
                command.arg(marked.named()).arg(gateway.id.as_str());
                command.arg(&*marked.leaves(ttl));
                match renewer {
                    Renewer::Bearer => command,
                    Renewer::Keeper(keeper) => command.arg(keeper.to_string()),
                    Renewer::Adopter(keeper) => command.arg(keeper.to_string()).arg(1),
                };
            };
            let answer = dispatch.run(&self.renew, keys, &id, fill).await;
            if let Some(reply) = marked.answered(answer)? {
                break reply;
            }
        };
        match reply.kind() {
            "renewed" => {
                gateway.ingest(keys, reply.news()?);
                let (held, margin) = reply.renewed(keys)?;
                marked.keep(held.expires_in);
                // It may end sooner than those who wait here expected.
                gateway.watch_expiry(keys.name(), held.expires_in);
                Ok(Renewal::Renewed(held, margin))
            }
            "adopted" => Ok(Renewal::Adopted),
            "another" => Ok(Renewal::Lost(Loss::HeldByAnother)),
            "free" => Ok(Renewal::Lost(Loss::Free)),
            "broken" | "overdue" => Ok(Renewal::Lost(reply.broken()?)),
            _ => Err(reply.unexpected()),
        }
    }
}
