//! Reads any bytes as the reply to a script of one server, for fuzzers.

use super::{
    super::client::calls::{fuzzed, shown},
    inspect::queue,
};

/// What every reader of replies makes of the bytes.
pub(crate) fn fuzzed_reply(bytes: &[u8]) -> String {
    fuzzed(
        bytes,
        &[
            |reply, _| shown(reply.news()),
            |reply, keys| shown(reply.held(keys)),
            |reply, _| format!("{:?}", queue(reply).is_some()),
            |reply, keys| shown(reply.contention(keys)),
            |reply, _| shown(reply.broken()),
            |reply, _| format!("{:?}", reply.foreign().is_some()),
        ],
    )
}
