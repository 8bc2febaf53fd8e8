//! The Redis store: one contract over a handful of scripts.
//!
//! No script answers from the data of a server that takes no writes. Most say so by their flags, by
//! which such a server refuses them before they run; an acquire ends with a write in any case. A list
//! is read without scripts, and asks whether the server is a replica.

mod acting;
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
mod listed;
mod look;
mod marks;
mod news_wanted;
mod permissions;
mod places;
mod readiness;
mod reading;
mod redlock;
mod relay;
mod replicated;
mod rounds;
mod scan;
mod scripts;
mod slot;
mod store;
mod subscription;
mod timers;
mod wake;

pub use client::{
    CredentialsError, PasswordError, RedisServers, check_credentials, check_quorum_credentials,
};
use client::{credentials, dispatch, failure, marker_line, route, run, sending, shard, topology};
pub use redlock::RedlockStore;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use scripts::fuzzed_reply;
pub use slot::{Slot, SlotTags};
pub use store::RedisStore;
