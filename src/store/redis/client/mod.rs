//! The way to the servers: connections, what is sent on them, and which server it is sent to.

pub(super) mod ask_many;
pub(super) mod calls;
pub(super) mod cluster;
mod connection;
pub(super) mod credentials;
pub(super) mod destination;
pub(super) mod dispatch;
mod driver;
mod endpoint;
mod epoch_regression;
pub(super) mod failure;
mod identity;
mod login;
pub(super) mod marker_connection;
mod pool;
mod pubsub;
pub(super) mod replicas;
mod resp;
pub(super) mod retry;
pub(super) mod route;
pub(super) mod run;
pub(super) mod safety;
pub(super) mod scan;
pub(super) mod sentinels;
pub(super) mod shard;
pub(super) mod topology;

pub use credentials::{CredentialsError, PasswordError};
pub use topology::{RedisServers, check_credentials, check_quorum_credentials};

pub(super) use connection::{Connection, answered};
pub(super) use endpoint::Endpoint;
pub(super) use pubsub::PubSubConnection;
