//! What all scripts take which pass a lock on.

use super::super::{
    client::calls::{ScriptCall, hex},
    keys::Keys,
    queue::gateway::RedisGateway,
};

/// The highest fence that this gateway has seen in the slot of a lock, in 16 digits, and its id.
pub(super) fn gateway(keys: &Keys, gateway: &RedisGateway) -> String {
    let mut text = String::with_capacity(32);
    hex::append_number::<16>(&mut text, gateway.floors.of(keys.slot()));
    text.push_str(gateway.id.as_str());
    text
}

/// Appends the keys, and what a script takes that ends something of an attempt.
pub(super) fn fill(command: &mut ScriptCall, keys: &Keys, by: &RedisGateway, id: &str) {
    command.arg(keys.lock()).arg(keys.fence());
    command.arg(id).arg(gateway(keys, by));
}
