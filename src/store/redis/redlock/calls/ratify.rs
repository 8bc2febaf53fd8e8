//! Calls `ratify.lua`.

use std::time::Duration;

use bb8_redis::redis::Cmd;
use tokio::time::Instant;

use crate::{
    lock::{FencingToken, TokenHash},
    store::{StoreError, Unavailability},
};

use super::super::{
    super::{keys::Keys, scripts::TOMBSTONE_MS},
    node::Node,
    nonce::Nonce,
    validity::begun_millis,
    vote::VoteId,
};

/// What a node says to the fence of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Ratification {
    /// It has accepted it.
    Ratified,
    /// Another lock of the slot has passed it there.
    Overtaken,
    /// It has a vote no more, or another one than it gave: a node has learnt from it meanwhile.
    Outdated,
    /// The try does not have the lock there (any more).
    Refused,
}

// === impl Node ===

impl Node {
    /// Tells the node the fence of a lease to which it has given this vote, once. `lead`: for how long the
    /// lease has lasted already.
    pub(in super::super) async fn ratify(
        &self,
        keys: &Keys,
        token: &TokenHash,
        nonce: &Nonce,
        fence: FencingToken,
        vote: &VoteId,
        lead: Duration,
    ) -> Result<Ratification, StoreError> {
        let token = token.to_string();
        let limit = Instant::now() + self.timeout;
        let connection = self.pool().connection(limit).await;
        let connection =
            connection.map_err(|why| StoreError::from(Unavailability::Connect(why.to_string())))?;
        let run = self.run_of(&connection)?.to_owned();
        let fill = |command: &mut Cmd| {
            for key in [keys.lock(), keys.info(), keys.ended(), keys.fence()] {
                command.arg(key);
            }
            command.arg(Keys::NODE);
            command.arg(&token).arg(nonce.as_str()).arg(fence.get());
            command.arg(TOMBSTONE_MS).arg(begun_millis(lead));
            command.arg(vote.as_str()).arg(&run);
        };
        let sent = self.once(connection, &self.scripts.ratify, keys, nonce.as_str(), fill);
        let reply = sent.await?;
        match reply.kind() {
            "ratified" => Ok(Ratification::Ratified),
            "outdated" => Ok(Ratification::Outdated),
            "overtaken" => Ok(Ratification::Overtaken),
            "refused" => Ok(Ratification::Refused),
            _ => Err(reply.unexpected()),
        }
    }
}
