//! Calls `reserve.lua`.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    lock::{FencingToken, HoldLimit, Owner, TokenHash},
    store::{
        StoreError, Unavailability,
        contract::Attempt,
        redis::{
            client::calls::{Reply, ScriptCall, TOMBSTONE_MS, metadata_json, token_hash},
            keys::Keys,
        },
    },
};

use super::super::{
    claim::{Claim, Nonce, begun_millis},
    node::{Node, delayed_without_data},
    scripts::{fill_idempotency, fill_lease_keys},
    vote::{Vote, VoteId},
};

/// What a try is to do.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct ReserveRequest {
    /// Take the lock if it is free; else only ask.
    pub(in super::super) take: bool,
    /// For how long it lasts if it is not delivered.
    pub(in super::super) undelivered_ttl: Option<Duration>,
    /// For how long somebody waits who wants to be woken.
    pub(in super::super) wake_within: Option<Duration>,
    /// Somebody else waits here, who wants to be woken also if this try is granted.
    pub(in super::super) others_wait: bool,
    /// A majority has granted the lease already, by this fence, and it began so long ago.
    pub(in super::super) granted: Option<(FencingToken, Duration)>,
}

// === impl Node ===

impl Node {
    /// Asks the node for its vote, once.
    pub(in super::super) async fn reserve(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        nonce: &Nonce,
        request: &ReserveRequest,
    ) -> Vote {
        let vote = self.asked(keys, attempt, nonce, request).await;
        let vote = vote.unwrap_or_else(Vote::None);
        self.votes.note(&vote);
        vote
    }

    async fn asked(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        nonce: &Nonce,
        request: &ReserveRequest,
    ) -> Result<Vote, StoreError> {
        let token = attempt.token.to_string();
        let metadata = metadata_json(&attempt.metadata);
        let connection = self
            .voting_connection(Instant::now() + self.timeout)
            .await?;
        let run = self.run_of(&connection)?.to_owned();
        let fill = |command: &mut ScriptCall| {
            fill_lease_keys(command, keys)
                .arg(keys.fence())
                .arg(keys.wanted())
                .arg(Keys::NODE)
                .arg(&token)
                .arg(nonce.as_str())
                .arg(attempt.ttl.as_millis());
            match attempt.hold_limit.map(HoldLimit::as_millis) {
                Some(ms) => command.arg(ms),
                None => command.arg(""),
            };
            let owner = attempt.owner.as_ref().map(Owner::as_str);
            command.arg(owner.unwrap_or_default()).arg(&metadata);
            fill_idempotency(command, attempt.idempotency.as_ref());
            for time in [request.wake_within, request.undelivered_ttl] {
                match time {
                    Some(time) => command.arg(begun_millis(time)),
                    None => command.arg(""),
                };
            }
            match request.granted {
                Some((fence, _)) => command.arg(fence.get()),
                None => command.arg(u8::from(request.take)),
            };
            command.arg(&run).arg(self.wait.as_millis().to_string());
            command.arg(u8::from(request.others_wait));
            command.arg(request.granted.map_or(0, |(_, ago)| begun_millis(ago)));
        };
        let sent = self.once(
            connection,
            &self.scripts.reserve,
            keys,
            nonce.as_str(),
            fill,
        );
        self.read(sent.await?, keys)
    }

    fn read(&self, mut reply: Reply, keys: &Keys) -> Result<Vote, StoreError> {
        match reply.kind() {
            "reserved" => {
                let fence = reply.integer().and_then(|fence| u64::try_from(fence).ok());
                let name = reply.text();
                let (Some(fence), Some(name)) = (fence, name) else {
                    return Err(reply.unexpected());
                };
                Ok(Vote::Reserved(fence, VoteId::new(&name)))
            }
            "unlearnt" => Err(self.unlearnt().into()),
            "delayed" => {
                let left = reply.integer().and_then(|ms| u64::try_from(ms).ok());
                let left = left.ok_or_else(|| reply.unexpected())?;
                let why = delayed_without_data(Duration::from_millis(left));
                Err(Unavailability::TooFewNodes(why).into())
            }
            "free" => Ok(Vote::Free),
            "again" => Ok(Vote::Again),
            "replay" => {
                let token = reply.text().as_deref().and_then(token_hash);
                let token = token.ok_or_else(|| reply.unexpected())?;
                Ok(Vote::Replay(token))
            }
            "held" => Ok(Vote::Held(Claim::read(&mut reply, keys)?)),
            "foreign" => {
                let left = reply.integer().ok_or_else(|| reply.unexpected())?;
                let mark = reply.mark().ok_or_else(|| reply.unexpected())?;
                let left = u64::try_from(left).ok().map(Duration::from_millis);
                Ok(Vote::Foreign(left, mark))
            }
            "mismatch" => Ok(Vote::Mismatch),
            "expired" => Ok(Vote::Expired),
            "superseded" => Ok(Vote::Superseded),
            "withdrawn" => Ok(Vote::Withdrawn),
            "layout" => Err(reply.layout(keys)),
            _ => Err(reply.refusal(keys)),
        }
    }
}

// === Ratify ===
//
// Calls `ratify.lua`.

/// What a node says to the fence of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis::redlock) enum Ratification {
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
    pub(in crate::store::redis::redlock) async fn ratify(
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
        let fill = |command: &mut ScriptCall| {
            fill_lease_keys(command, keys).arg(keys.fence());
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
