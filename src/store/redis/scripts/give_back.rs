//! Calls `give_back.lua`.

use crate::{
    lock::{FencingToken, KeeperId, TokenHash},
    store::{StoreError, contract::GiveBack},
};

use super::{
    super::{
        client::{calls::ScriptCall, dispatch::Dispatch},
        keys::Keys,
        queue::{gateway::RedisGateway, timers::OrphanKind},
        records::id,
    },
    Scripts, queueing,
};

/// Who may know of a grant that is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum GrantKnowledge {
    /// Its answer may be on its way: its idempotency key is used.
    MayBeDelivered,
    /// Nobody, as far as is known here: its idempotency key is not used. If its attempt was answered
    /// from the store before the message of its grant came here, it is not given back; nor is a later
    /// grant of that attempt than the one with this fence.
    Undelivered(FencingToken),
    /// Nobody: it was kept back, and has this fence. Its idempotency key is not used.
    WaitsForReplicas(FencingToken),
    /// Nobody: its attempt has ended on another server, or on this one before it lost data. Given back is the place of the
    /// attempt at this gateway, or the grant with this fence, which this keeper has taken over if there is one. Its
    /// idempotency key is not used.
    Departed(Option<FencingToken>, Option<KeeperId>),
    /// Nobody: its keeper has answered it to nobody, and nor has anybody before. Its idempotency key is not used.
    Unanswered(KeeperId),
}

// === impl GrantKnowledge ===

impl GrantKnowledge {
    fn keeper(self) -> Option<KeeperId> {
        match self {
            Self::Unanswered(keeper) => Some(keeper),
            Self::Departed(_, keeper) => keeper,
            Self::MayBeDelivered | Self::Undelivered(_) | Self::WaitsForReplicas(_) => None,
        }
    }
}

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn give_back(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
        token: &TokenHash,
        known: GrantKnowledge,
    ) -> Result<GiveBack, StoreError> {
        let id = id(token);
        let digits = |fence: FencingToken| format!("{:016}", fence.get());
        let fill = |command: &mut ScriptCall, _| {
            queueing::fill(command, keys, gateway, &id);
            match known {
                GrantKnowledge::MayBeDelivered => command.arg(0).arg(""),
                GrantKnowledge::Undelivered(fence) => command.arg(1).arg(digits(fence)),
                GrantKnowledge::WaitsForReplicas(_) | GrantKnowledge::Unanswered(_) => {
                    command.arg(2).arg("")
                }
                GrantKnowledge::Departed(fence, _) => {
                    command.arg(3).arg(fence.map(digits).unwrap_or_default())
                }
            };
            if let Some(keeper) = known.keeper() {
                command.arg(keeper.to_string());
            }
        };
        let run = dispatch.run(&self.give_back, keys, &id, fill);
        let mut reply = run.await?.reply;
        gateway.ingest(keys, reply.news()?);
        let outcome = match reply.kind() {
            "given_back" => GiveBack::GivenBack,
            "nothing" => GiveBack::NothingHeld,
            "kept" => GiveBack::Kept,
            _ => return Err(reply.unexpected()),
        };
        let ended = match (&outcome, known) {
            // Its attempt may go on.
            (GiveBack::Kept, _)
            | (GiveBack::NothingHeld, GrantKnowledge::Undelivered(_))
            | (_, GrantKnowledge::Departed(..)) => None,
            (_, GrantKnowledge::Undelivered(fence) | GrantKnowledge::WaitsForReplicas(fence)) => {
                Some(Some(fence))
            }
            // The fence of the grant that was given back, if there was one.
            _ => Some(
                reply
                    .count()
                    .and_then(|fence| FencingToken::new(fence).ok()),
            ),
        };
        if let Some(fence) = ended {
            let kind = OrphanKind::Departed(fence, known.keeper());
            gateway.departures.add(keys.name(), *token, kind);
        }
        Ok(outcome)
    }
}
