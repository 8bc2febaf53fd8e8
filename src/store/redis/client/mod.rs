//! Access to the Redis servers: connections, the commands that are sent on them, and which server each command goes
//! to.

pub(super) mod ask_many;
pub(super) mod cluster;
mod connection;
pub(super) mod credentials;
pub(super) mod dispatch;
mod endpoint;
pub(super) mod failure;
pub(super) mod identity;
pub(super) mod pool;
pub(super) mod replicas;
mod reply;
mod resp;
pub(super) mod scan;
mod script;
pub(super) mod sentinels;
pub(super) mod shard;
mod texts;
pub(super) mod topology;

pub use credentials::{CredentialsError, PasswordError, check_credentials};

pub(super) use connection::{Connection, answered};
pub(super) use endpoint::{Endpoint, PubSubConnection};
pub(super) use reply::Reply;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) use reply::{fuzzed, shown};
#[cfg(test)]
pub(super) use resp::text;
pub(super) use script::{Command, KeyOfLock, Parts, Script, TOMBSTONE_MS};
pub(super) use texts::{
    REQUEST, append_hex, append_number, append_said, hex, read_hex, read_request, read_said,
    request_text, token_hash,
};
