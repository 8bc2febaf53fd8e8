//! Calls `acquire.lua`.

use std::fmt::Write as _;

use bb8_redis::redis::Cmd;

use crate::{
    lock::{FencingToken, HeldLease, HoldLimit, Owner, Salt},
    store::{
        StoreError, Unavailability,
        contract::{Acquisition, Attempt, Holder, Idempotency},
    },
};

use super::{
    super::{
        dispatch::{Answer, Dispatch, Sending},
        floors::Floors,
        keys::Keys,
    },
    Reply, Scripts,
    record::{limit, metadata_json},
    script::TOMBSTONE_MS,
};

// === impl Scripts ===

impl Scripts {
    pub(in crate::store::redis) async fn acquire(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        floors: &Floors,
        attempt: &Attempt,
    ) -> Result<Acquisition, StoreError> {
        let token = attempt.token.to_string();
        let metadata = metadata_json(&attempt.metadata);
        let fill = |command: &mut Cmd, sending| {
            for key in [keys.lock(), keys.info(), keys.ended(), keys.fence()] {
                command.arg(key);
            }
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
                .arg(floors.of(keys.slot()))
                .arg(TOMBSTONE_MS)
                .arg(u8::from(sending == Sending::Again));
            fill_idempotency(command, attempt.idempotency.as_ref());
        };
        let run = dispatch.run(&self.acquire, keys, &token, fill);
        let Answer { mut reply, earlier } = run.await?;
        let outcome = read(&mut reply, keys, attempt);
        match &outcome {
            Ok(Acquisition::Granted(lease)) => floors.raise(keys.slot(), lease.fence),
            // An earlier copy that is still on its way must not come to hold the lock once it is
            // free: nobody would know its token.
            _ if earlier.is_some() => {
                self.give_back(dispatch, keys, &attempt.token).await?;
            }
            _ => {}
        }
        outcome
    }
}

fn fill_idempotency(command: &mut Cmd, idempotency: Option<&Idempotency>) {
    match idempotency {
        None => command.arg("").arg("").arg(""),
        Some(key) => command
            .arg(hex(key.hash.as_bytes()))
            .arg(hex(key.fingerprint.as_bytes()))
            .arg(hex(key.salt.as_bytes())),
    };
}

fn read(reply: &mut Reply, keys: &Keys, attempt: &Attempt) -> Result<Acquisition, StoreError> {
    match reply.kind() {
        "granted" => {
            let lease = granted(reply, attempt).ok_or_else(|| reply.unexpected())?;
            Ok(Acquisition::Granted(lease))
        }
        "again" => Ok(Acquisition::Granted(reply.lease(keys)?)),
        "replayed" => {
            let lease = reply.lease(keys)?;
            let salt = reply.text().as_deref().and_then(salt);
            let salt = salt.ok_or_else(|| reply.unexpected())?;
            Ok(Acquisition::Replayed(lease, salt))
        }
        "held" => Ok(Acquisition::Held(Holder::Lease(reply.lease(keys)?))),
        "foreign" => match reply.foreign() {
            Some(holder) => Ok(Acquisition::Held(holder)),
            None => Err(reply.unexpected()),
        },
        "mismatch" => Ok(Acquisition::IdempotencyMismatch),
        "expired" => Ok(Acquisition::IdempotencyExpired),
        "withdrawn" => Err(Unavailability::Withdrawn.into()),
        "exhausted" => Err(StoreError::FenceExhausted),
        "clock" => match reply.integer() {
            Some(seconds) => {
                let time = format!("{seconds} s since 1970");
                Err(Unavailability::Clock(time).into())
            }
            None => Err(reply.unexpected()),
        },
        "counter" => Err(StoreError::ForeignData {
            key: keys.fence().to_owned(),
            found: "a string that is no fence counter".into(),
        }),
        "layout" => Err(reply.layout(keys)),
        _ => Err(reply.unexpected()),
    }
}

/// A new lease is what was asked for.
fn granted(reply: &mut Reply, attempt: &Attempt) -> Option<HeldLease> {
    let fence = u64::try_from(reply.integer()?).ok()?;
    Some(HeldLease {
        fence: FencingToken::new(fence).ok()?,
        ttl: attempt.ttl,
        expires_in: attempt.ttl.duration(),
        held_for: std::time::Duration::ZERO,
        hold_expires_in: limit(reply.integer()?),
        owner: attempt.owner.clone(),
        metadata: attempt.metadata.clone(),
    })
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a string cannot fail");
    }
    text
}

fn salt(hex: &str) -> Option<Salt> {
    let number = u128::from_str_radix(hex, 16).ok()?;
    (hex.len() == 32).then(|| Salt::from_bytes(number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_comes_back_from_its_own_text() {
        let salt_in = Salt::random();
        assert_eq!(salt(&hex(salt_in.as_bytes())), Some(salt_in));
        for bad in ["", "0", &"0".repeat(33), &"x".repeat(32)] {
            assert_eq!(salt(bad), None);
        }
    }
}
