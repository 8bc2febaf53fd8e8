//! The id of an attempt, which its ticket and its lease share, and other texts that contain an id.

use crate::{
    lock::TokenHash,
    store::redis::client::{append_hex, token_hash},
};

use super::super::fields::Layout;

/// First byte of every id of an attempt, and so of every lease. A value of a lock with another first byte is foreign.
const VERSION: u8 = b'2';

/// Layout of the id of an attempt: the version, and the hash of the token in hexadecimal digits.
pub(in crate::store::redis) const ID: Layout = Layout {
    name: "id",
    groups: &[&[("version", 1), ("token", 64)]],
};

/// Layout of the value of `:key:HASH`, which an idempotency key leads to: `q` and the id of a ticket, `l` and the id of
/// a lease, or `n` and the id of a waiter that a newer waiter took out of the queue.
pub(in crate::store::redis) const OWNER: Layout = Layout {
    name: "owner",
    groups: &[&[("kind", 1), ("id", 65)]],
};

/// Layout of the value of `:newest:HASH`: the id of the newest waiter with a key of `supersedes`. The time at which it
/// arrived, in µs, is there only if earlier requests of its caller have waited.
pub(in crate::store::redis) const NEWEST: Layout = Layout {
    name: "newest",
    groups: &[&[("id", 65), ("arrived", 16)]],
};

/// Layout of an argument of scripts: the highest fence that a gateway has seen in a slot, in digits, and the id of the
/// gateway.
pub(in crate::store::redis) const FLOOR: Layout = Layout {
    name: "floor",
    groups: &[&[("fence", 16), ("gateway", 16)]],
};

/// Creates the id of the attempt that has this token.
pub(in crate::store::redis) fn id(token: &TokenHash) -> String {
    let mut id = String::with_capacity(const { ID.place("token").end });
    id.push(char::from(VERSION));
    append_hex(&mut id, token.as_bytes());
    id
}

/// The token hash in an id or at the beginning of a lease; `None` if the text is foreign.
pub(in crate::store::redis) fn token_in(id: &[u8]) -> Option<TokenHash> {
    if id.first() != Some(&VERSION) {
        return None;
    }
    let token = id.get(const { ID.place("token") })?;
    token_hash(std::str::from_utf8(token).ok()?)
}
