//! The keys and arguments that all scripts take which pass a lock on.

use bb8_redis::redis::Cmd;

use super::{
    super::{gateway::Gateway, keys::Keys},
    script::TOMBSTONE_MS,
};

/// Appends the keys.
pub(super) fn fill_keys(command: &mut Cmd, keys: &Keys) {
    for key in keys.all() {
        command.arg(key);
    }
}

/// Appends the memory of ends, the floor and the gateway's id.
pub(super) fn fill_gateway(command: &mut Cmd, keys: &Keys, gateway: &Gateway) {
    command
        .arg(TOMBSTONE_MS)
        .arg(gateway.floors.of(keys.slot()))
        .arg(gateway.id.as_str());
}

/// Appends the keys, and what a script takes that ends something of an attempt.
pub(super) fn fill(command: &mut Cmd, keys: &Keys, gateway: &Gateway, token: &str) {
    fill_keys(command, keys);
    command.arg(token);
    fill_gateway(command, keys, gateway);
}
