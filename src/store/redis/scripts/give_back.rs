//! Calls `give_back.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::{FencingToken, TokenHash},
    store::{StoreError, contract::GiveBack},
};

use super::{
    super::{dispatch::Dispatch, gateway::Gateway, keys::Keys},
    Scripts, queueing,
};

/// Who may know of a grant that is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum Knowledge {
    /// Its answer may be on its way: its idempotency key is used.
    MayBeHeard,
    /// Nobody, as far as is known here: its idempotency key is not used. If its attempt was answered
    /// from the store before the word of its grant came here, it is not given back; nor is a later
    /// grant of that attempt than the one with this fence. A gateway of an earlier version does not
    /// say which one it means.
    Unheard(Option<FencingToken>),
}

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn give_back(
        &self,
        dispatch: &Dispatch,
        gateway: &Gateway,
        keys: &Keys,
        token: &TokenHash,
        known: Knowledge,
    ) -> Result<GiveBack, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Cmd, _| {
            queueing::fill(command, keys, gateway, &token);
            match known {
                Knowledge::MayBeHeard => command.arg(0).arg(""),
                Knowledge::Unheard(None) => command.arg(1).arg(""),
                Knowledge::Unheard(Some(fence)) => command.arg(1).arg(fence.get()),
            };
        };
        let run = dispatch.run(&self.give_back, keys, &token, fill);
        let mut reply = run.await?.reply;
        gateway.hear(keys, reply.news()?);
        match reply.kind() {
            "given_back" => Ok(GiveBack::GivenBack),
            // A lease that was answered again is not this attempt's any more.
            "kept" | "nothing" => Ok(GiveBack::NothingHeld),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.unexpected()),
        }
    }
}
