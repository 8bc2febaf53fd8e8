//! Calls of the scripts of a node: for each script a wrapper, which knows the positions of its arguments and decodes
//! its reply.

use std::{sync::atomic::Ordering, time::Duration};

use tokio::time::Instant;

use crate::{
    lock::{
        FencingToken, ForeignMark, HeldLease, HoldLimit, IdempotencyHash, RecipientId,
        ReleaseRequest, Salt, TokenHash,
    },
    store::{
        StoreError, Unavailability,
        contract::{
            Attempt, Confirmation, FenceCheck, GiveBack, Loss, Renewal, RenewalTtl, Renewer,
        },
        history::EndedLease,
    },
};

use super::{
    super::{
        client::{
            Command, Reply, TOMBSTONE_MS, append_said,
            dispatch::{DispatchReply, Sending},
            hex, read_hex, request_text, token_hash,
        },
        keys::Keys,
    },
    node::{Node, Votes, delayed_without_data},
    record::{NodeHolder, millis},
    scripts::{Nonce, begun_millis, fill_idempotency, fill_lease_keys},
};

/// Name of a vote of a node. The name changes when the node begins a new life of its data, and when another node has
/// learnt from the node.
pub(super) type VoteId = Box<str>;

/// Vote of a node in the first round of a try. A node that refuses and a node that does not answer have different
/// votes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Vote {
    /// The node has reserved the lock for the try, and proposes this fence under this vote.
    Reserved(u64, VoteId),
    /// The lock is free at the node, and the try did not ask to take it.
    Free,
    /// The attempt has the lock at the node already, by an earlier try.
    Again,
    /// The lease of this token lives at the node under the idempotency key of the attempt.
    Replay(TokenHash),
    /// Another attempt or a foreign client has the lock at the node.
    Taken(NodeHolder),
    /// A lease lives at the node under the idempotency key, and was requested with another fingerprint.
    Mismatch,
    /// The lease under the idempotency key has ended at the node.
    Expired,
    /// A newer request with the idempotency key is the recipient of this attempt's lease.
    Replaced,
    /// The try, or the whole attempt, was withdrawn.
    Withdrawn,
    /// The node has no vote: it does not answer, may not vote yet, or is not fit to vote.
    None(StoreError),
}

/// What a try asks the nodes in the first round.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReserveRequest {
    /// Whether a node must take the lock for the try if the lock is free; otherwise the try only asks who has the lock.
    pub(super) take: bool,
    /// How long the lease lasts if its grant is not delivered; `None` for a lease that is not provisional.
    pub(super) undelivered_ttl: Option<Duration>,
    /// For how long a node that refuses the try must wake this gateway when the lock becomes free; `None`: no waiter
    /// needs that.
    pub(super) wake_within: Option<Duration>,
    /// Whether the node must wake this gateway for its other waiters even if the node reserves the lock for this try.
    pub(super) others_wait: bool,
    /// The fence of the lease and the time since it began, if a majority has granted it to this try already.
    pub(super) granted: Option<(FencingToken, Duration)>,
}

/// Answer of a node that is asked to accept the fence of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ratification {
    /// The node has accepted the fence of the lease.
    Ratified,
    /// Another lock of the slot has passed the fence at the node; or the vote of the node has ended or changed, because
    /// another node has learnt from it meanwhile.
    Overtaken,
    /// The try does not have the lock at the node, or no longer has it.
    Refused,
}

/// A request to nodes to answer a lease again under its idempotency key.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReplayRequest {
    /// Token hash of the attempt that asks.
    pub(super) asks: TokenHash,
    /// Hash of the idempotency key under which the attempt asks.
    pub(super) key: IdempotencyHash,
    /// Token hash of the lease that lives under the key.
    pub(super) lease: TokenHash,
}

/// Answer of a node to a replay request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReplayReply {
    /// The lease, the salt of its token, and whether the lease may have been delivered to another attempt before.
    Lease(HeldLease, Salt, bool),
    /// A newer request under the idempotency key is the recipient of the lease.
    Replaced,
    /// The lease does not live at the node under this idempotency key.
    NotFound,
}

/// Outcome of a release at one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeRelease {
    /// The lease was at the node, and this release has ended it. `None`: an earlier copy of the release has, or the
    /// record of the lease is missing.
    Released(Option<EndedLease>),
    /// The lease was at the node, and a break has ended it. `held`: another holder has the lock there now.
    Broken { held: bool },
    /// The lease was not at the node, for this reason.
    Lost(Loss),
    /// Another recipient has adopted the lease and keeps it.
    Adopted(LeaseCopy),
}

/// A lease at a node, from which another node can take the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeaseCopy {
    pub(super) recipient: RecipientId,
    pub(super) left: Duration,
    /// The lease record, which only `restore.lua` reads.
    record: Box<[u8]>,
}

/// Target of a break at a node. If another lease or value has the lock there, the break ends nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeTarget {
    /// The lease of this token.
    Lease(TokenHash),
    /// A foreign lock. The mark identifies the value that another program has written.
    Foreign(ForeignMark),
}

/// Outcome of a break at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeBreak {
    /// The break has ended its target at the node.
    Broken,
    /// Another break has ended the target at the node.
    Ended,
    /// The target does not have the lock at the node, or no longer has it.
    Changed,
}

/// Reads which lease a release has ended.
fn ended(reply: &mut Reply) -> Option<EndedLease> {
    let fence = FencingToken::new(reply.text()?.parse().ok()?).ok()?;
    let held_for = reply.text().and_then(|text| text.parse().ok());
    Some(EndedLease {
        fence,
        held_for: held_for.map(Duration::from_millis),
        may_rest: false,
    })
}

// === impl Vote ===

impl Vote {
    /// Whether the node has voted, for or against the try.
    pub(super) fn counts(&self) -> bool {
        !matches!(self, Self::None(_))
    }

    /// Whether another attempt or a foreign client has the lock at the node.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self, Self::Taken(_))
    }

    /// Whether the try has the lock at the node, or may have it because the answer was lost.
    pub(super) fn may_be_reserved(&self) -> bool {
        matches!(
            self,
            Self::Reserved(..) | Self::None(StoreError::Indeterminate(_))
        )
    }
}

// === impl Node ===

impl Node {
    /// Asks the node for its vote on a try, once.
    pub(super) async fn reserve(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        nonce: &Nonce,
        request: &ReserveRequest,
    ) -> Vote {
        let asked = async {
            let token = attempt.token.to_string();
            let mut said = String::new();
            append_said(&mut said, &attempt.terms);
            let (owner, metadata) = said.split_once('\n').unwrap_or_default();
            let limit = Instant::now() + self.timeout;
            let connection = self.voting_connection(limit).await?;
            let run = self.run_of(&connection)?.to_owned();
            let fill = |command: &mut Command| {
                fill_lease_keys(command, keys)
                    .arg(keys.fence())
                    .arg(keys.of_name("wanted"))
                    .arg(Keys::NODE)
                    .arg(&token)
                    .arg(nonce.as_str())
                    .arg(attempt.terms.ttl().as_millis());
                match attempt.terms.hold_limit().map(HoldLimit::as_millis) {
                    Some(ms) => command.arg(ms),
                    None => command.arg(""),
                };
                command.arg(owner).arg(metadata);
                fill_idempotency(command, attempt.idempotency.as_ref());
                for time in [request.wake_within, request.undelivered_ttl] {
                    match time {
                        Some(time) => command.arg(begun_millis(time)),
                        None => command.arg(""),
                    };
                }
                let take = u64::from(request.take);
                command.arg(request.granted.map_or(take, |(fence, _)| fence.get()));
                command.arg(&run).arg(self.wait.as_millis().to_string());
                command.arg(u8::from(request.others_wait));
                command.arg(request.granted.map_or(0, |(_, ago)| begun_millis(ago)));
            };
            let echo = nonce.as_str();
            let sent = self.once(connection, &self.scripts.reserve, keys, echo, fill);
            self.read(sent.await?, keys)
        };
        let vote = asked.await.unwrap_or_else(Vote::None);
        self.votes.note(&vote);
        vote
    }

    fn read(&self, mut reply: Reply, keys: &Keys) -> Result<Vote, StoreError> {
        match reply.kind() {
            "reserved" => {
                let fence = reply.integer().and_then(|fence| u64::try_from(fence).ok());
                let name = reply.text();
                let (Some(fence), Some(name)) = (fence, name) else {
                    return Err(reply.unexpected());
                };
                Ok(Vote::Reserved(fence, name.into()))
            }
            "unlearnt" => Err(self.unlearnt().into()),
            "delayed" => {
                let left = reply.integer().and_then(millis);
                let why = delayed_without_data(left.ok_or_else(|| reply.unexpected())?);
                Err(Unavailability::TooFewNodes(why).into())
            }
            "free" => Ok(Vote::Free),
            "again" => Ok(Vote::Again),
            "replay" => Ok(Vote::Replay(reply.token()?)),
            "held" | "foreign" => Ok(Vote::Taken(reply.holder(keys)?)),
            "mismatch" => Ok(Vote::Mismatch),
            "expired" => Ok(Vote::Expired),
            "replaced" => Ok(Vote::Replaced),
            "withdrawn" => Ok(Vote::Withdrawn),
            _ => Err(reply.refusal(keys)),
        }
    }

    /// Asks the node once to accept the fence of a lease, for which it has given this vote. `lead`: for how long the
    /// lease has lasted already.
    pub(super) async fn ratify(
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
        let connection = self.shard.pool.connection(limit).await?;
        let run = self.run_of(&connection)?.to_owned();
        let fill = |command: &mut Command| {
            fill_lease_keys(command, keys).arg(keys.fence());
            command.arg(Keys::NODE);
            command.arg(&token).arg(nonce.as_str()).arg(fence.get());
            command.arg(TOMBSTONE_MS).arg(begun_millis(lead));
            command.arg(&**vote).arg(&run);
        };
        let sent = self.once(connection, &self.scripts.ratify, keys, nonce.as_str(), fill);
        let reply = sent.await?;
        match reply.kind() {
            "ratified" => Ok(Ratification::Ratified),
            "overtaken" | "outdated" => Ok(Ratification::Overtaken),
            "refused" => Ok(Ratification::Refused),
            _ => Err(reply.unexpected()),
        }
    }

    /// The holder of the lock at the node; `None` if the lock is free there. With `delivered_only`, a lease whose grant
    /// was not delivered counts as none.
    pub(super) async fn view(
        &self,
        keys: &Keys,
        delivered_only: bool,
    ) -> Result<Option<NodeHolder>, StoreError> {
        let fill = |command: &mut Command, _| {
            command.arg(keys.lock()).arg(keys.of_name("info"));
            command.arg(delivered_only.then_some(1));
        };
        let run = self.run(&self.scripts.view, keys, keys.lock(), fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "held" | "foreign" => reply.holder(keys).map(Some),
            "free" => Ok(None),
            _ => Err(reply.unexpected()),
        }
    }

    /// Asks the node how the lease of a token has ended; `None` if the node remembers no end of the lease.
    pub(super) async fn ended(
        &self,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<Option<FenceCheck>, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Command, _| {
            command.arg(keys.of_name("ended")).arg(&token);
            command.arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.ended, keys, &token, fill);
        let mut reply = run.await?.reply;
        let ago = reply.integer().and_then(|ago| u64::try_from(ago).ok());
        let ago = ago.ok_or_else(|| reply.unexpected())?;
        match reply.kind() {
            "released" => Ok(Some(FenceCheck::Released(Some(Duration::from_millis(ago))))),
            "broken" => Ok(Some(FenceCheck::Broken)),
            "unknown" => Ok(None),
            _ => Err(reply.unexpected()),
        }
    }

    pub(super) async fn replay(
        &self,
        keys: &Keys,
        request: &ReplayRequest,
    ) -> Result<ReplayReply, StoreError> {
        let asks = request.asks.to_string();
        let lease = request.lease.to_string();
        let fill = |command: &mut Command, _| {
            fill_lease_keys(command, keys)
                .arg(&asks)
                .arg(hex(request.key.as_bytes()));
            command.arg(&lease).arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.replay, keys, &asks, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            kind @ ("replayed" | "collected") => {
                let delivered = kind == "replayed";
                let salt = reply.text().as_deref().and_then(read_hex);
                let salt = salt.ok_or_else(|| reply.unexpected())?;
                let salt = Salt::from_bytes(salt);
                Ok(ReplayReply::Lease(reply.lease(keys)?, salt, delivered))
            }
            "replaced" => Ok(ReplayReply::Replaced),
            "gone" => Ok(ReplayReply::NotFound),
            _ => Err(reply.unexpected()),
        }
    }

    pub(super) async fn renew(
        &self,
        keys: &Keys,
        renewer: Renewer,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Command, _| {
            fill_lease_keys(command, keys).arg(&token);
            command
                .arg_ttl(ttl.asked)
                .arg_ttl(ttl.max)
                .arg(TOMBSTONE_MS);
            match renewer {
                Renewer::Bearer => command.arg("").arg(0),
                Renewer::Recipient(recipient) => command.arg(recipient.to_string()).arg(0),
                Renewer::Adopter(recipient) => command.arg(recipient.to_string()).arg(1),
            };
        };
        let run = self.run(&self.scripts.renew, keys, &token, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "renewed" => {
                let held = reply.lease(keys)?;
                let margin = reply.integer().and_then(millis);
                let margin = margin.ok_or_else(|| reply.unexpected())?;
                Ok(Renewal::Renewed(held, margin))
            }
            "adopted" => Ok(Renewal::Adopted),
            "another" => Ok(Renewal::Lost(Loss::HeldByAnother)),
            "free" => Ok(Renewal::Lost(Loss::Free)),
            "broken" => Ok(Renewal::Lost(reply.broken()?)),
            _ => Err(reply.unexpected()),
        }
    }

    pub(super) async fn confirm(
        &self,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Command, _| {
            fill_lease_keys(command, keys).arg(&token).arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.confirm, keys, &token, fill);
        let mut reply = run.await?.reply;
        match reply.kind() {
            "confirmed" => Ok(Confirmation::Confirmed(reply.lease(keys)?)),
            "lost" => Ok(Confirmation::Lost),
            "replaced" => Ok(Confirmation::Replaced),
            _ => Err(reply.unexpected()),
        }
    }

    pub(super) async fn release(
        &self,
        keys: &Keys,
        recipient: Option<RecipientId>,
        lease: &TokenHash,
        granted_here: bool,
    ) -> Result<NodeRelease, StoreError> {
        let token = lease.to_string();
        let recipient = match recipient {
            None => "",
            // Most leases have the recipient that their token names.
            Some(recipient) if recipient.attempt() == *lease => &token,
            Some(recipient) => &recipient.to_string(),
        };
        let fill = |command: &mut Command, _| {
            fill_lease_keys(command, keys).arg(keys.of_name("wanted"));
            command.arg(&token).arg(TOMBSTONE_MS).arg(recipient);
            command.arg((!granted_here).then_some(1));
        };
        let run = self.run(&self.scripts.release, keys, &token, fill);
        let DispatchReply { mut reply, earlier } = run.await?;
        let loss = match reply.kind() {
            "released" => return Ok(NodeRelease::Released(ended(&mut reply))),
            "adopted" => {
                let recipient = reply.text().as_deref().and_then(token_hash);
                let recipient = recipient.ok_or_else(|| reply.unexpected())?;
                return Ok(NodeRelease::Adopted(LeaseCopy {
                    recipient: RecipientId::of_attempt(&recipient),
                    left: reply.integer().and_then(millis).unwrap_or_default(),
                    record: reply.bytes().unwrap_or_default().into(),
                }));
            }
            "another" => Loss::HeldByAnother,
            "free" => Loss::Free,
            // No earlier copy of this release has ended the lease: it would have released the lease, not broken it.
            "broken" => match (reply.integer(), reply.integer()) {
                (Some(held @ (0 | 1)), Some(1)) => {
                    return Ok(NodeRelease::Broken { held: held == 1 });
                }
                (Some(held @ (0 | 1)), Some(0)) => {
                    return Ok(NodeRelease::Lost(Loss::Broken { held: held == 1 }));
                }
                _ => return Err(reply.unexpected()),
            },
            "overdue" => reply.broken()?,
            _ => return Err(reply.unexpected()),
        };
        match earlier {
            None => Ok(NodeRelease::Lost(loss)),
            // It is not known whether the lease was lost before, or was released by the copy whose reply was lost.
            Some(unknown) => Err(unknown.into()),
        }
    }

    /// Asks the node once to take a lease again that the recipient `released_by` has released there. `left`: the time
    /// that was left then. Answers whether the node has taken the lease.
    pub(super) async fn restore(
        &self,
        keys: &Keys,
        lease: &TokenHash,
        released_by: RecipientId,
        left: Duration,
        copy: &LeaseCopy,
    ) -> Result<bool, StoreError> {
        let token = lease.to_string();
        let connection = self.shard.pool.connection(Instant::now() + self.timeout);
        let fill = |command: &mut Command| {
            fill_lease_keys(command, keys).arg(keys.fence());
            command.arg(&token).arg(released_by.to_string());
            command.arg(left.as_millis().to_string()).arg(TOMBSTONE_MS);
            command.arg(&*copy.record);
        };
        let sent = self.once(connection.await?, &self.scripts.restore, keys, &token, fill);
        Ok(sent.await?.kind() == "restored")
    }

    /// Withdraws an undelivered try. Without a nonce, withdraws the whole attempt, which may have been delivered.
    /// `unanswered` is the recipient, if it knows that the lease was answered to no caller: the idempotency key then
    /// stays usable.
    pub(super) async fn withdraw(
        &self,
        keys: &Keys,
        token: &TokenHash,
        nonce: Option<&Nonce>,
        unanswered: Option<RecipientId>,
    ) -> Result<GiveBack, StoreError> {
        let token = token.to_string();
        let fill = |command: &mut Command, _| {
            fill_lease_keys(command, keys)
                .arg(keys.of_name("wanted"))
                .arg(&token);
            command.arg(nonce.map(Nonce::as_str).unwrap_or_default());
            let uses_key = nonce.is_none() && unanswered.is_none();
            command.arg(TOMBSTONE_MS).arg(u8::from(uses_key));
            if let Some(recipient) = unanswered {
                command.arg(recipient.to_string());
            }
        };
        let run = self.run(&self.scripts.withdraw, keys, &token, fill);
        let reply = run.await?.reply;
        match reply.kind() {
            "given_back" => Ok(GiveBack::GivenBack),
            "kept" => Ok(GiveBack::Kept),
            "nothing" => Ok(GiveBack::NothingHeld),
            _ => Err(reply.unexpected()),
        }
    }

    pub(super) async fn break_lock(
        &self,
        keys: &Keys,
        nonce: &Nonce,
        node_target: &NodeTarget,
    ) -> Result<NodeBreak, StoreError> {
        let (token, mark) = match node_target {
            NodeTarget::Lease(token) => (token.to_string(), String::new()),
            NodeTarget::Foreign(mark) => (String::new(), mark.to_string()),
        };
        let fill = |command: &mut Command, sending| {
            fill_lease_keys(command, keys).arg(keys.of_name("wanted"));
            command.arg(nonce.as_str()).arg(TOMBSTONE_MS);
            let late = u8::from(sending == Sending::Again);
            command.arg(&token).arg(&mark).arg(late);
        };
        let run = self.run(&self.scripts.break_lock, keys, nonce.as_str(), fill);
        let reply = run.await?.reply;
        match reply.kind() {
            "broken" => Ok(NodeBreak::Broken),
            "ended" => Ok(NodeBreak::Ended),
            "changed" => Ok(NodeBreak::Changed),
            _ => Err(reply.unexpected()),
        }
    }

    /// Asks the holder of a lease at the node to release it. Answers whether the lease holds the lock at the node.
    pub(super) async fn ask(
        &self,
        keys: &Keys,
        token: &TokenHash,
        request: &ReleaseRequest,
    ) -> Result<bool, StoreError> {
        let token = token.to_string();
        let within = u64::try_from(request.within.as_millis()).unwrap_or(u64::MAX);
        let text = request_text(request);
        let fill = |command: &mut Command, _| {
            fill_lease_keys(command, keys).arg(&token).arg(within);
            command.arg(&text).arg(TOMBSTONE_MS);
        };
        let run = self.run(&self.scripts.ask, keys, &token, fill);
        let reply = run.await?.reply;
        match reply.kind() {
            "asked" => Ok(true),
            "changed" => Ok(false),
            _ => Err(reply.unexpected()),
        }
    }
}

// === impl Votes ===

impl Votes {
    pub(super) fn note(&self, vote: &Vote) {
        let counter = match vote {
            Vote::Reserved(..) | Vote::Free => &self.given,
            Vote::None(_) => &self.missing,
            _ => &self.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
