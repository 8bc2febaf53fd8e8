//! Scripts on an attempt: `acquire.lua`, `confirm.lua`, `leave.lua`, `lapse.lua` and `give_back.lua`.

use std::time::Duration;

use crate::{
    lock::{FencingToken, HeldLease, HoldLimit, KeeperId, Mode, Salt, TokenHash},
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
        records::{id, pack, place},
    },
    lock_scripts::LockScripts,
    reply::not_ours,
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

/// A wait that is longer is asked for again by the time it is over.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

// === impl LockScripts ===

impl LockScripts<'_> {
    pub(in crate::store::redis) async fn acquire(
        &self,
        attempt: &Attempt,
    ) -> Result<(Acquisition, Option<RunId>), StoreError> {
        let (keys, gateway) = (&self.keys, &self.context.gateway);
        let (id, rest) = (id(&attempt.token), pack(attempt));
        let ttl = attempt.ttl.as_millis();
        let limit = attempt.hold_limit;
        let lasts = limit.map_or(ttl, |limit| ttl.min(limit.as_millis()));
        let key = attempt.idempotency.as_ref();
        let key = key.map_or_else(String::new, |key| hex(key.hash.as_bytes()));
        // Who does not wait is neither parked nor queued, and is spared both looks.
        let waits = attempt.wait.is_some();
        // It asks again because it has lost its place, and what was sent before may still arrive.
        let resent = waits && gateway.parking.was_resent(&attempt.token);
        let says_it_is_alive = waits && gateway.should_announce(keys.slot());
        let fill = |command: &mut Command, sending| {
            let late = resent || sending == Sending::Again;
            command.arg(&id).arg(lasts).arg(&rest).arg(self.floor());
            let waits_or_late = waits || late || attempt.sharing.is_some();
            // What most attempts do not need is left out: each argument costs the server as much as a small command.
            if waits_or_late || !key.is_empty() {
                command.arg(&key);
            }
            if waits_or_late {
                command.arg(&*place(attempt, late));
            }
            if let Some(waiting) = attempt.wait {
                command.arg(waiting.max_wait.min(LONGEST_WAIT).as_millis().to_string());
                command.arg(waiting.longest_queue);
                if late || says_it_is_alive {
                    command.arg(keys.gateway());
                }
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
            // An earlier copy that is still on its way must not come to hold the lock once it is
            // free: nobody would know its token.
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
            "superseded" => Ok(Acquisition::Superseded),
            "mismatch" => Ok(Acquisition::IdempotencyMismatch),
            "expired" => Ok(Acquisition::IdempotencyExpired),
            "withdrawn" => Err(Unavailability::Withdrawn.into()),
            _ => Err(reply.refusal(keys)),
        }
    }

    /// The lease that lives under the idempotency key.
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
            "superseded" => Confirmation::Superseded,
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
            "superseded" => Leaving::Superseded,
            _ => return Err(reply.unexpected()),
        };
        Ok((leaving, run))
    }

    /// Gives up the place of an attempt if it was kept until now. Answers whether the lock may pass on because of that.
    pub(in crate::store::redis) async fn lapse(
        &self,
        token: &TokenHash,
    ) -> Result<bool, StoreError> {
        let id = id(token);
        let fill = |command: &mut Command, _| {
            command.arg(&id).arg(self.context.gateway.id.as_str());
        };
        let answer = self.run(&self.context.scripts.lapse, &id, fill).await;
        // If the server does not answer, the next one may still have the place.
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
        let (mode, fence, keeper) = match known {
            GrantKnowledge::MayBeDelivered => (0, None, None),
            GrantKnowledge::Undelivered(fence) => (1, Some(fence), None),
            GrantKnowledge::WaitsForReplicas(_) => (2, None, None),
            GrantKnowledge::Unanswered(keeper) => (2, None, Some(keeper)),
            GrantKnowledge::Departed(fence, keeper) => (3, fence, keeper),
        };
        let fence = fence.map(|fence| format!("{:016}", fence.get()));
        let fill = |command: &mut Command, _| {
            command.arg(&id).arg(self.floor()).arg(mode);
            command.arg(fence.as_deref().unwrap_or_default());
            command.arg(keeper.map(|keeper| keeper.to_string()));
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
            // Its attempt may go on.
            (GiveBack::Kept, _)
            | (GiveBack::NothingHeld, GrantKnowledge::Undelivered(_))
            | (_, GrantKnowledge::Departed(..)) => return Ok(outcome),
            (_, GrantKnowledge::Undelivered(fence) | GrantKnowledge::WaitsForReplicas(fence)) => {
                Some(fence)
            }
            // The fence of the grant that was given back, if there was one.
            _ => reply
                .count()
                .and_then(|fence| FencingToken::new(fence).ok()),
        };
        self.note_departed(token, OrphanKind::Departed(ended, keeper));
        Ok(outcome)
    }

    /// Remembers that an attempt has ended, for a server that takes over.
    fn note_departed(&self, token: &TokenHash, kind: OrphanKind) {
        let departures = &self.context.gateway.departures;
        departures.add(self.keys.name(), *token, kind);
    }
}

/// A new lease is what was asked for.
fn granted(reply: &mut Reply, attempt: &Attempt) -> Option<HeldLease> {
    let fence = reply.count()?;
    let ttl = attempt.ttl.duration();
    let limit = attempt.hold_limit.map(HoldLimit::duration);
    let mode = match attempt.sharing {
        None => Mode::Exclusive,
        Some(sharing) if sharing.has_slot => Mode::Shared {
            slot: Some(u16::try_from(reply.integer()?).ok()?),
        },
        Some(_) => Mode::Shared { slot: None },
    };
    Some(HeldLease {
        fence: FencingToken::new(fence).ok()?,
        mode,
        ttl: attempt.ttl,
        expires_in: limit.map_or(ttl, |limit| ttl.min(limit)),
        held_for: Duration::ZERO,
        hold_expires_in: limit,
        owner: attempt.owner.clone(),
        metadata: attempt.metadata.clone(),
        release_requested: None,
        as_of: reply.sent(),
    })
}
