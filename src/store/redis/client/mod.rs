//! The way to the servers: connections, what is sent on them, and which server it is sent to.

mod connection;
pub(super) mod credentials;
mod driver;
mod endpoint;
mod login;
pub(super) mod marker_connection;
mod pool;
mod resp;
pub(super) mod route;

pub(super) mod cluster;
pub(super) mod dispatch;
pub(super) mod failure;
pub(super) mod replicas;
pub(super) mod run;
pub(super) mod sending;
pub(super) mod sentinels;
pub(super) mod shard;
pub(super) mod topology;

pub(super) use connection::{Connection, answered};
pub use credentials::{
    CredentialsError, PasswordError, check_credentials, check_quorum_credentials,
};
pub(super) use endpoint::{Endpoint, PubSubConnection};
pub(super) use pool::Pool;
pub use topology::RedisServers;

// What is still needed of the store that lies above.
use super::{
    Slot, SlotTags, admission, foreign, keys, list, permissions, retry, scripts, subscription,
};
