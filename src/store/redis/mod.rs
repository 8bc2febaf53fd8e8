//! The Redis store: one contract over a handful of scripts.
//!
//! No script answers from the data of a server that takes no writes. Most say so by their flags, by
//! which such a server refuses them before they run; an acquire ends with a write in any case. A list
//! is read without scripts, and asks whether the server is a replica.

mod acting;
mod admission;
mod break_lock;
mod channels;
mod cluster;
mod credentials;
mod dispatch;
mod ear;
mod eviction;
mod examination;
mod failure;
mod floors;
mod foreign;
mod gateway;
mod keys;
mod layout;
mod link;
mod list;
mod listed;
mod login;
mod look;
mod marker_line;
mod marks;
mod news_wanted;
mod permissions;
mod places;
mod pool;
mod readiness;
mod reading;
mod redirect;
mod redlock;
mod relay;
mod replicas;
mod replicated;
mod rounds;
mod route;
mod run;
mod scan;
mod scripts;
mod sending;
mod sentinels;
mod servers;
mod shard;
mod shards;
mod slot;
mod store;
mod subscription;
mod timers;
mod topology;
mod wake;

pub use credentials::{
    CredentialsError, PasswordError, check_credentials, check_quorum_credentials,
};
pub use redlock::RedlockStore;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use scripts::fuzzed_reply;
pub use servers::RedisServers;
pub use slot::{Slot, SlotTags};
pub use store::RedisStore;
