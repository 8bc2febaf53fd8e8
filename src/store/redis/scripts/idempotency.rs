//! The idempotency key of an attempt, as the scripts are given it.

use bb8_redis::redis::Cmd;

use crate::store::contract::Idempotency;

use super::hex;

/// Key, fingerprint and salt; each empty if there is no key.
pub(in crate::store::redis) fn fill_idempotency(
    command: &mut Cmd,
    idempotency: Option<&Idempotency>,
) {
    match idempotency {
        None => command.arg("").arg("").arg(""),
        Some(key) => command
            .arg(hex::write(key.hash.as_bytes()))
            .arg(hex::write(key.fingerprint.as_bytes()))
            .arg(hex::write(key.salt.as_bytes())),
    };
}
