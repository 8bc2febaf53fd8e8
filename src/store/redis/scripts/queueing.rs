//! What all scripts take which pass a lock on.

use bb8_redis::redis::Cmd;

use super::super::{keys::Keys, queue::gateway::RedisGateway};

/// The highest fence that this gateway has seen in the slot of a lock, in 16 digits, and its id.
pub(super) fn gateway(keys: &Keys, gateway: &RedisGateway) -> String {
    let floor = gateway.floors.of(keys.slot());
    format!("{floor:016}{}", gateway.id.as_str())
}

/// Appends the keys, and what a script takes that ends something of an attempt.
pub(super) fn fill(command: &mut Cmd, keys: &Keys, by: &RedisGateway, id: &str) {
    command.arg(keys.lock()).arg(keys.fence());
    command.arg(id).arg(gateway(keys, by));
}
