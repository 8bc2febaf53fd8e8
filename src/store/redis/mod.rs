//! The Redis store: one contract over a handful of scripts.
//!
//! No script answers from the data of a server that takes no writes. Most say so by their flags, by
//! which such a server refuses them before they run; an acquire ends with a write in any case. A list
//! is read without scripts, and asks whether the server is a replica.

mod admission;
mod break_lock;
mod channels;
mod client;
mod eviction;
mod examination;
mod floors;
mod foreign;
mod gateway;
mod keys;
mod layout;
mod list;
mod list_holders;
mod lost_waiters;
mod marks;
mod news_wanted;
mod permissions;
mod queue_maintenance;
mod read_locks;
mod readiness;
mod redlock;
mod relay;
mod replicated;
mod retry;
mod rounds;
mod scan;
mod scripts;
mod slot;
mod store;
mod subscription;
mod timer_actions;
mod timers;

pub use client::{
    CredentialsError, PasswordError, RedisServers, check_credentials, check_quorum_credentials,
};
use client::{
    credentials, dispatch, failure, marker_connection, route, run, sending, shard, topology,
};
pub use redlock::RedlockStore;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use scripts::fuzzed_reply;
pub use slot::{Slot, SlotTags};
pub use store::RedisStore;
