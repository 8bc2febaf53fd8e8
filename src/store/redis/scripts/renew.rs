//! Calls `renew.lua`.

use crate::{
    lock::TokenHash,
    store::{
        StoreError,
        contract::{Loss, Renewal, RenewalTtl, Renewer},
    },
};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch},
        keys::Keys,
        records::id,
    },
    Scripts,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn renew(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        renewer: Renewer,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let id = id(token);
        let fill = |command: &mut ScriptCall, _| {
            command.arg(keys.lock()).arg(keys.fence()).arg(&id);
            command.arg_ttl(ttl.asked).arg_ttl(ttl.max);
            match renewer {
                Renewer::Bearer => command,
                Renewer::Keeper(keeper) => command.arg(keeper.to_string()),
                Renewer::Adopter(keeper) => command.arg(keeper.to_string()).arg(1),
            };
        };
        let mut reply = dispatch.run(&self.renew, keys, &id, fill).await?.reply;
        match reply.kind() {
            "renewed" => {
                let (held, margin) = reply.renewed(keys)?;
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
