//! Calls `acquire.lua`.

use std::time::Duration;

use bb8_redis::redis::Cmd;

use crate::{
    lock::{FencingToken, HeldLease, HoldLimit, KeeperId, Owner, Salt},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Acquisition, Attempt, Place},
    },
};

use super::{
    super::{
        dispatch::{Answer, Dispatch, Sending},
        gateway::Gateway,
        keys::Keys,
        run::Told,
    },
    Knowledge, Reply, Scripts,
    hex::{self, token_hash},
    idempotency::fill_idempotency,
    queueing,
    record::{limit, metadata_json},
    script::TOMBSTONE_MS,
};

/// A wait that is longer is asked for again by the time it is over.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn acquire(
        &self,
        dispatch: &Dispatch,
        gateway: &Gateway,
        keys: &Keys,
        attempt: &Attempt,
    ) -> Result<(Acquisition, Told), StoreError> {
        let token = attempt.token.to_string();
        let metadata = metadata_json(&attempt.metadata);
        // It asks again because it has lost its place, and what was sent before may still arrive.
        let sent_again = gateway.parking.was_sent_again(&attempt.token);
        let fill = |command: &mut Cmd, sending| {
            queueing::fill_keys(command, keys);
            command.arg(&token).arg(attempt.ttl.as_millis());
            match attempt.hold_limit.map(HoldLimit::as_millis) {
                Some(ms) => command.arg(ms),
                None => command.arg(""),
            };
            command
                .arg(
                    attempt
                        .owner
                        .as_ref()
                        .map(Owner::as_str)
                        .unwrap_or_default(),
                )
                .arg(&metadata)
                .arg(gateway.floors.of(keys.slot()))
                .arg(TOMBSTONE_MS)
                .arg(u8::from(sent_again || sending == Sending::Again));
            fill_idempotency(command, attempt.idempotency.as_ref());
            command.arg(gateway.id.as_str());
            match attempt.wait {
                Some(waiting) => command
                    .arg(waiting.patience.min(LONGEST_WAIT).as_millis().to_string())
                    .arg(waiting.longest_queue),
                None => command.arg("").arg(0),
            };
        };
        let run = dispatch.run(&self.acquire, keys, &token, fill);
        let Answer { mut reply, earlier } = run.await?;
        let told = reply.told();
        gateway.hear(keys, reply.news()?);
        let outcome = read(&mut reply, keys, attempt);
        let earlier = earlier.or(sent_again.then_some(Uncertainty::TimedOut));
        match (&outcome, earlier) {
            (Ok(Acquisition::Granted(lease)), _) => gateway.floors.raise(keys.slot(), lease.fence),
            (Ok(Acquisition::Queued(place)), earlier) => {
                gateway.queued(keys, &place.contention);
                if earlier.is_some() {
                    gateway.parking.sent_again(&attempt.token);
                }
            }
            // An earlier copy that is still on its way must not come to hold the lock once it is
            // free: nobody would know its token.
            (_, Some(unknown)) => {
                let known = Knowledge::MayBeHeard;
                let withdrawn = self.give_back(dispatch, gateway, keys, &attempt.token, known);
                withdrawn.await.map_err(|_not_withdrawn| unknown)?;
            }
            (_, None) => {}
        }
        Ok((outcome?, told))
    }
}

fn read(reply: &mut Reply, keys: &Keys, attempt: &Attempt) -> Result<Acquisition, StoreError> {
    match reply.kind() {
        "granted" => {
            let lease = granted(reply, attempt).ok_or_else(|| reply.unexpected())?;
            Ok(Acquisition::Granted(lease))
        }
        "again" => Ok(Acquisition::Granted(reply.lease(keys)?)),
        "replayed" => {
            let (lease, salt) = under_the_key(reply, keys)?;
            let before = reply.text().as_deref().and_then(token_hash);
            let before = before.ok_or_else(|| reply.unexpected())?;
            let before = KeeperId::of_attempt(&before);
            Ok(Acquisition::Replayed(lease, salt, Some(before)))
        }
        "collected" => {
            let (lease, salt) = under_the_key(reply, keys)?;
            Ok(Acquisition::Collected(lease, salt))
        }
        "held" => Ok(Acquisition::Held(reply.contention(keys)?)),
        "queued" => {
            let ahead = reply.integer().and_then(|ahead| u64::try_from(ahead).ok());
            let ahead = ahead.ok_or_else(|| reply.unexpected())?;
            let contention = reply.contention(keys)?;
            Ok(Acquisition::Queued(Place { ahead, contention }))
        }
        "full" => Ok(Acquisition::QueueFull),
        "superseded" => Ok(Acquisition::Superseded),
        "mismatch" => Ok(Acquisition::IdempotencyMismatch),
        "expired" => Ok(Acquisition::IdempotencyExpired),
        "withdrawn" => Err(Unavailability::Withdrawn.into()),
        _ => Err(reply.refusal(keys)),
    }
}

fn under_the_key(reply: &mut Reply, keys: &Keys) -> Result<(HeldLease, Salt), StoreError> {
    let lease = reply.lease(keys)?;
    let salt = reply.text().as_deref().and_then(hex::read);
    let salt = salt.ok_or_else(|| reply.unexpected())?;
    Ok((lease, Salt::from_bytes(salt)))
}

/// A new lease is what was asked for.
fn granted(reply: &mut Reply, attempt: &Attempt) -> Option<HeldLease> {
    let fence = u64::try_from(reply.integer()?).ok()?;
    Some(HeldLease {
        fence: FencingToken::new(fence).ok()?,
        ttl: attempt.ttl,
        expires_in: attempt.ttl.duration(),
        held_for: Duration::ZERO,
        hold_expires_in: limit(reply.integer()?),
        owner: attempt.owner.clone(),
        metadata: attempt.metadata.clone(),
    })
}
