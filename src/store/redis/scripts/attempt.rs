//! Scripts on an attempt: `acquire.lua`, `confirm.lua`, `leave.lua`, `lapse.lua` and `give_back.lua`.

use std::time::Duration;

use crate::{
    lock::{FencingToken, HeldLease, Mode, RecipientId, Salt, TokenHash},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{
            Acquisition, Attempt, Confirmation, Contention, GiveBack, Leaving, QueuePosition,
        },
    },
};

use super::{
    super::{
        client::{
            Command, Reply,
            dispatch::{DispatchReply, Sending},
            hex,
            identity::RunId,
        },
        queue::timers::OrphanKind,
        records::{id, lasts, pack, place},
    },
    lock_scripts::LockScripts,
    reply::not_ours,
};

/// What is known about the delivery of a grant that must be released. The script releases or keeps the lease
/// accordingly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store::redis) enum GrantKnowledge {
    /// The answer with the grant may be on its way to the caller: the idempotency key counts as used.
    MayBeDelivered,
    /// This gateway did not deliver the grant with this fence: the idempotency key does not count as used. The lease is
    /// kept if the store answered the grant to its attempt before the message of the grant arrived here, or if the
    /// attempt has a later grant.
    Undelivered(FencingToken),
    /// The grant with this fence waited for replicas and was delivered to no caller. The idempotency key does not count
    /// as used.
    WaitsForReplicas(FencingToken),
    /// The attempt has ended on another server, or on this server before the server lost data. The script gives up the
    /// position of the attempt at this gateway, or the grant with this fence, which this recipient may have adopted.
    /// The idempotency key does not count as used.
    Departed(Option<FencingToken>, Option<RecipientId>),
    /// No caller was answered the lease, neither by this recipient nor before. The idempotency key does not count as
    /// used.
    Unanswered(RecipientId),
}

/// Longest wait that is sent to the store. A caller with a longer wait asks again before this time is over.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

// === impl LockScripts ===

impl LockScripts<'_> {
    pub(in crate::store::redis) async fn acquire(
        &self,
        attempt: &Attempt,
    ) -> Result<(Acquisition, Option<RunId>), StoreError> {
        let (keys, gateway) = (&self.keys, &self.context.gateway);
        let (id, rest) = (id(&attempt.token), pack(attempt));
        let lasts = lasts(&attempt.terms);
        let key = attempt.idempotency.as_ref();
        let key = key.map_or_else(String::new, |key| hex(key.hash.as_bytes()));
        // An attempt that does not wait is neither parked nor queued, and skips both lookups.
        let waits = attempt.wait.is_some();
        // If the acquire was sent before, the attempt asks again because it lost its position, so an earlier copy of
        // its acquire may still arrive.
        let resent = waits && gateway.parking.was_resent(&attempt.token);
        let says_it_is_alive = waits && gateway.should_announce(keys.slot());
        let fill = |command: &mut Command, sending| {
            let late = resent || sending == Sending::Again;
            command.arg(&id).arg(lasts).arg(&rest).arg(self.floor());
            let waits_or_late = waits || late || attempt.terms.sharing.is_some();
            // Arguments that most attempts do not need are left out: each costs the server as much as a small command.
            if waits_or_late || !key.is_empty() {
                command.arg(&key);
            }
            if waits_or_late {
                command.arg(&*place(attempt, late));
            }
            if let Some(waiting) = attempt.wait {
                command.arg(waiting.max_wait.min(LONGEST_WAIT).as_millis().to_string());
                command.arg(waiting.longest_queue);
                if late || says_it_is_alive || waiting.supersedes.is_some() {
                    command.arg(keys.gateway());
                }
                command.arg(waiting.supersedes.map(|hash| hex(hash.as_bytes())));
            }
        };
        let answer = self.run_with_news(&self.context.scripts.acquire, &id, fill);
        let DispatchReply { mut reply, earlier } = answer.await?;
        let run = reply.run().cloned();
        let outcome = self.acquisition(&mut reply, attempt);
        let earlier = earlier.or(resent.then_some(Uncertainty::TimedOut));
        match (&outcome, earlier) {
            (Ok(Acquisition::Granted(lease)), _) => self.note_fence(lease),
            (Ok(Acquisition::Queued(place)), earlier) => {
                gateway.note_queued(keys, &place.contention, reply.next_look());
                if says_it_is_alive {
                    gateway.note_announced(keys.slot());
                }
                if earlier.is_some() {
                    gateway.parking.mark_resent(&attempt.token);
                }
            }
            // An earlier copy that is still on its way must not be granted the lock later: no caller would know its
            // token.
            (_, Some(unknown)) => {
                let withdrawn = self.give_back(&attempt.token, GrantKnowledge::MayBeDelivered);
                withdrawn.await.map_err(|_not_withdrawn| unknown)?;
            }
            (_, None) => {}
        }
        Ok((outcome?, run))
    }

    fn acquisition(&self, reply: &mut Reply, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let keys = &self.keys;
        match reply.kind() {
            "granted" => {
                let lease = granted(reply, attempt).ok_or_else(|| reply.unexpected())?;
                Ok(Acquisition::Granted(lease))
            }
            "again" => Ok(Acquisition::Granted(reply.held(keys)?)),
            "replayed" => {
                let (lease, salt) = self.under_the_key(reply)?;
                Ok(Acquisition::Replayed(lease, salt))
            }
            "collected" => {
                let (lease, salt) = self.under_the_key(reply)?;
                Ok(Acquisition::Collected(lease, salt, reply.duration()?))
            }
            "held" => Ok(Acquisition::Held(self.contention(reply)?)),
            "queued" => Ok(Acquisition::Queued(QueuePosition {
                ahead: reply.count().ok_or_else(|| reply.unexpected())?,
                waited: reply.duration()?,
                contention: self.contention(reply)?,
            })),
            "full" => Ok(Acquisition::QueueFull),
            "replaced" => Ok(Acquisition::Replaced),
            "mismatch" => Ok(Acquisition::IdempotencyMismatch),
            "expired" => Ok(Acquisition::IdempotencyExpired),
            "newer" => Ok(Acquisition::NewerWaiter),
            "over" => Ok(Acquisition::ReservationOver),
            "withdrawn" => Err(Unavailability::Withdrawn.into()),
            _ => Err(reply.refusal(keys)),
        }
    }

    /// Reads the living lease to which the idempotency key leads, and the salt of its token.
    fn under_the_key(&self, reply: &mut Reply) -> Result<(HeldLease, Salt), StoreError> {
        let (lease, salt, _) = reply.told(&self.keys)?;
        self.note_fence(&lease);
        Ok((lease, salt.ok_or_else(|| not_ours(&self.keys))?))
    }

    fn contention(&self, reply: &mut Reply) -> Result<Contention, StoreError> {
        let contention = reply.contention(&self.keys)?;
        let floors = &self.context.gateway.floors;
        floors.raise_to_holder(self.keys.slot(), contention.holder.as_ref());
        Ok(contention)
    }

    pub(in crate::store::redis) async fn confirm(
        &self,
        token: &TokenHash,
    ) -> Result<(Confirmation, Option<RunId>), StoreError> {
        let id = id(token);
        let fill = |command: &mut Command, _| {
            command.arg(&id);
        };
        let mut reply = self
            .run(&self.context.scripts.confirm, &id, fill)
            .await?
            .reply;
        let run = reply.run().cloned();
        let confirmation = match reply.kind() {
            "confirmed" => Confirmation::Confirmed(self.held(&mut reply)?),
            "lost" => Confirmation::Lost,
            "replaced" => Confirmation::Replaced,
            _ => return Err(reply.unexpected()),
        };
        Ok((confirmation, run))
    }

    pub(in crate::store::redis) async fn leave(
        &self,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<(Leaving, Option<RunId>), StoreError> {
        let id = id(token);
        let fill = |command: &mut Command, _| {
            let keep = keep_for.map(|keep| keep.as_millis().to_string());
            command
                .arg(&id)
                .arg(self.floor())
                .arg(keep.unwrap_or_default());
        };
        let answer = self.run_with_news(&self.context.scripts.leave, &id, fill);
        let mut reply = answer.await?.reply;
        let run = reply.run().cloned();
        let leaving = match reply.kind() {
            "left" => {
                if keep_for.is_none() {
                    self.note_departed(token, OrphanKind::Departed(None, None));
                }
                Leaving::Left(reply.contention(&self.keys)?)
            }
            "granted" => Leaving::Granted(self.held(&mut reply)?),
            "replaced" => Leaving::Replaced,
            "newer" => Leaving::NewerWaiter,
            _ => return Err(reply.unexpected()),
        };
        Ok((leaving, run))
    }

    /// Gives up the kept position of an attempt. Answers whether the lock may pass on because of that.
    pub(in crate::store::redis) async fn lapse(
        &self,
        token: &TokenHash,
    ) -> Result<bool, StoreError> {
        let id = id(token);
        let fill = |command: &mut Command, _| {
            command.arg(&id).arg(self.context.gateway.id.as_str());
        };
        let answer = self.run(&self.context.scripts.lapse, &id, fill).await;
        // If the server does not answer, the server that takes over may still have the position.
        if !(answer.as_ref()).is_ok_and(|answer| answer.reply.kind() == "kept") {
            self.note_departed(token, OrphanKind::Departed(None, None));
        }
        let mut reply = answer?.reply;
        match reply.kind() {
            "lapsed" => Ok(reply.integer() == Some(1)),
            "kept" => Ok(false),
            _ => Err(reply.unexpected()),
        }
    }

    pub(in crate::store::redis) async fn give_back(
        &self,
        token: &TokenHash,
        known: GrantKnowledge,
    ) -> Result<GiveBack, StoreError> {
        let id = id(token);
        let (mode, fence, recipient) = match known {
            GrantKnowledge::MayBeDelivered => (0, None, None),
            GrantKnowledge::Undelivered(fence) => (1, Some(fence), None),
            GrantKnowledge::WaitsForReplicas(_) => (2, None, None),
            GrantKnowledge::Unanswered(recipient) => (2, None, Some(recipient)),
            GrantKnowledge::Departed(fence, recipient) => (3, fence, recipient),
        };
        let fence = fence.map(|fence| format!("{:016}", fence.get()));
        let fill = |command: &mut Command, _| {
            command.arg(&id).arg(self.floor()).arg(mode);
            command.arg(fence.as_deref().unwrap_or_default());
            command.arg(recipient.map(|recipient| recipient.to_string()));
        };
        let run = self.run_with_news(&self.context.scripts.give_back, &id, fill);
        let mut reply = run.await?.reply;
        let outcome = match reply.kind() {
            "given_back" => GiveBack::GivenBack,
            "nothing" => GiveBack::NothingHeld,
            "kept" => GiveBack::Kept,
            _ => return Err(reply.unexpected()),
        };
        let ended = match (&outcome, known) {
            // The attempt may go on to use its lease, so it must not count as ended.
            (GiveBack::Kept, _)
            | (GiveBack::NothingHeld, GrantKnowledge::Undelivered(_))
            | (_, GrantKnowledge::Departed(..)) => return Ok(outcome),
            (_, GrantKnowledge::Undelivered(fence) | GrantKnowledge::WaitsForReplicas(fence)) => {
                Some(fence)
            }
            // The fence of the released grant, if the attempt held one.
            _ => reply
                .count()
                .and_then(|fence| FencingToken::new(fence).ok()),
        };
        self.note_departed(token, OrphanKind::Departed(ended, recipient));
        Ok(outcome)
    }

    /// Remembers that an attempt has ended, so that its grant or position can be released at a server that takes over.
    fn note_departed(&self, token: &TokenHash, kind: OrphanKind) {
        let departures = &self.context.gateway.departures;
        departures.add(self.keys.name(), *token, kind);
    }
}

/// Makes the lease of a new grant from its fence, its slot and its end in the reply, and the attempt.
fn granted(reply: &mut Reply, attempt: &Attempt) -> Option<HeldLease> {
    let (fence, terms) = (FencingToken::new(reply.count()?).ok()?, &attempt.terms);
    let reserved = terms.reservation().map(|_| reply.count());
    let mode = match terms.sharing {
        None => Mode::Exclusive,
        Some(sharing) if sharing.has_slot => Mode::Shared {
            slot: Some(u16::try_from(reply.integer()?).ok()?),
        },
        Some(_) => Mode::Shared { slot: None },
    };
    let mut lease = terms.granted(fence, mode, reply.sent());
    if let Some(left) = reserved {
        lease.expires_in = Duration::from_millis(left?);
        lease.hold_expires_in = Some(lease.expires_in);
    }
    Some(lease)
}
