//! Calls `acquire.lua`.

use std::time::Duration;

use crate::{
    lock::{FencingToken, HeldLease, HoldLimit, KeeperId, Mode, Salt},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Acquisition, Attempt, QueuePosition},
    },
};

use super::{
    super::{
        client::{
            calls::{Reply, ScriptCall, hex, token_hash},
            dispatch::{Dispatch, DispatchReply, Sending},
            run::RunId,
        },
        keys::Keys,
        queue::gateway::RedisGateway,
        records::{id, pack, place},
    },
    GrantKnowledge, Scripts, queueing,
    record::not_ours,
};

/// A wait that is longer is asked for again by the time it is over.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn acquire(
        &self,
        dispatch: &Dispatch,
        gateway: &RedisGateway,
        keys: &Keys,
        attempt: &Attempt,
    ) -> Result<(Acquisition, Option<RunId>), StoreError> {
        let (id, rest) = (id(&attempt.token), pack(attempt));
        let ttl = attempt.ttl.as_millis();
        let lasts = attempt
            .hold_limit
            .map_or(ttl, |limit| ttl.min(limit.as_millis()));
        let key = attempt
            .idempotency
            .as_ref()
            .map(|key| hex::write(key.hash.as_bytes()));
        let key = key.as_deref().unwrap_or_default();
        // Who does not wait is neither parked nor queued, and is spared both looks.
        let waits = attempt.wait.is_some();
        // It asks again because it has lost its place, and what was sent before may still arrive.
        let resent = waits && gateway.parking.was_resent(&attempt.token);
        let says_it_is_alive = waits && gateway.should_announce(keys.slot());
        let fill = |command: &mut ScriptCall, sending| {
            let late = resent || sending == Sending::Again;
            command.arg(keys.lock()).arg(keys.fence());
            command.arg(&id).arg(lasts).arg(&rest);
            command.arg(queueing::gateway(keys, gateway));
            let waits_or_late = waits || late || attempt.sharing.is_some();
            // What most attempts do not need is left out: each argument costs the server as much as a small command.
            if waits_or_late || !key.is_empty() {
                command.arg(key);
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
        let answer = dispatch.run(&self.acquire, keys, &id, fill);
        let DispatchReply { mut reply, earlier } = answer.await?;
        let run = reply.run().cloned();
        gateway.ingest(keys, reply.news()?);
        let outcome = read(&mut reply, keys, attempt);
        let earlier = earlier.or(resent.then_some(Uncertainty::TimedOut));
        match (&outcome, earlier) {
            (Ok(Acquisition::Granted(lease)), _) => gateway.floors.raise(keys.slot(), lease.fence),
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
                let known = GrantKnowledge::MayBeDelivered;
                let withdrawn = self.give_back(dispatch, gateway, keys, &attempt.token, known);
                withdrawn.await.map_err(|_not_withdrawn| unknown)?;
            }
            (_, None) => {}
        }
        Ok((outcome?, run))
    }
}

fn read(reply: &mut Reply, keys: &Keys, attempt: &Attempt) -> Result<Acquisition, StoreError> {
    match reply.kind() {
        "granted" => {
            let lease = granted(reply, attempt).ok_or_else(|| reply.unexpected())?;
            Ok(Acquisition::Granted(lease))
        }
        "again" => Ok(Acquisition::Granted(reply.held(keys)?)),
        "replayed" => {
            let (lease, salt) = under_the_key(reply, keys)?;
            let before = reply.text().as_deref().and_then(token_hash);
            let before = before.ok_or_else(|| reply.unexpected())?;
            let before = KeeperId::of_attempt(&before);
            Ok(Acquisition::Replayed(lease, salt, Some(before)))
        }
        "collected" => {
            let (lease, salt) = under_the_key(reply, keys)?;
            let _before = reply.text();
            let waited = reply.micros().ok_or_else(|| reply.unexpected())?;
            let waited = Duration::from_micros(waited);
            Ok(Acquisition::Collected(lease, salt, waited))
        }
        "held" => Ok(Acquisition::Held(reply.contention(keys)?)),
        "queued" => {
            let ahead = reply.count().ok_or_else(|| reply.unexpected())?;
            let waited = reply.micros().ok_or_else(|| reply.unexpected())?;
            let waited = Duration::from_micros(waited);
            let contention = reply.contention(keys)?;
            Ok(Acquisition::Queued(QueuePosition {
                ahead,
                waited,
                contention,
            }))
        }
        "full" => Ok(Acquisition::QueueFull),
        "superseded" => Ok(Acquisition::Superseded),
        "mismatch" => Ok(Acquisition::IdempotencyMismatch),
        "expired" => Ok(Acquisition::IdempotencyExpired),
        "withdrawn" => Err(Unavailability::Withdrawn.into()),
        _ => Err(reply.refusal(keys)),
    }
}

/// The lease that lives under the idempotency key.
fn under_the_key(reply: &mut Reply, keys: &Keys) -> Result<(HeldLease, Salt), StoreError> {
    let (lease, salt, _) = reply.told(keys)?;
    Ok((lease, salt.ok_or_else(|| not_ours(keys))?))
}

/// A new lease is what was asked for.
fn granted(reply: &mut Reply, attempt: &Attempt) -> Option<HeldLease> {
    let fence = reply.count()?;
    let ttl = attempt.ttl.duration();
    let limit = attempt.hold_limit.map(HoldLimit::duration);
    let mode = match attempt.sharing {
        None => Mode::Exclusive,
        Some(sharing) => Mode::Shared {
            slot: if sharing.has_slot {
                Some(u16::try_from(reply.integer()?).ok()?)
            } else {
                None
            },
        },
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
