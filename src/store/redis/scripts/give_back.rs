//! Calls `give_back.lua`.

use bb8_redis::redis::Cmd;

use crate::{
    lock::{FencingToken, TokenHash},
    store::{StoreError, contract::GiveBack},
};

use super::{
    super::{dispatch::Dispatch, gateway::Gateway, keys::Keys, layout::id},
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
    /// Nobody: it was kept back. Its idempotency key is not used.
    KeptBack,
}

/// What became of a grant that was kept back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum TakenBack {
    /// Nobody holds the lock by it.
    Ended,
    /// Somebody else was answered it under its idempotency key.
    Kept,
}

/// What the script says.
enum Returned {
    Now,
    Nothing,
    Kept,
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
        let run = self.run_give_back(dispatch, gateway, keys, token, known);
        Ok(match run.await? {
            Returned::Now => GiveBack::GivenBack,
            // A lease that was answered again is not this attempt's any more.
            Returned::Nothing | Returned::Kept => GiveBack::NothingHeld,
        })
    }

    /// Takes back a grant that was kept back.
    pub(in crate::store::redis) async fn take_back(
        &self,
        dispatch: &Dispatch,
        gateway: &Gateway,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<TakenBack, StoreError> {
        let known = Knowledge::KeptBack;
        let run = self.run_give_back(dispatch, gateway, keys, token, known);
        Ok(match run.await? {
            Returned::Now | Returned::Nothing => TakenBack::Ended,
            Returned::Kept => TakenBack::Kept,
        })
    }

    async fn run_give_back(
        &self,
        dispatch: &Dispatch,
        gateway: &Gateway,
        keys: &Keys,
        token: &TokenHash,
        known: Knowledge,
    ) -> Result<Returned, StoreError> {
        let id = id(token);
        let fill = |command: &mut Cmd, _| {
            queueing::fill(command, keys, gateway, &id);
            match known {
                Knowledge::MayBeHeard => command.arg(0).arg(""),
                Knowledge::Unheard(None) => command.arg(1).arg(""),
                Knowledge::Unheard(Some(fence)) => {
                    command.arg(1).arg(format!("{:016}", fence.get()))
                }
                Knowledge::KeptBack => command.arg(2).arg(""),
            };
        };
        let run = dispatch.run(&self.give_back, keys, &id, fill);
        let mut reply = run.await?.reply;
        gateway.hear(keys, reply.news()?);
        match reply.kind() {
            "given_back" => Ok(Returned::Now),
            "nothing" => Ok(Returned::Nothing),
            "kept" => Ok(Returned::Kept),
            _ => Err(reply.unexpected()),
        }
    }
}
