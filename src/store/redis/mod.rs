//! The Redis store: one contract over a handful of scripts.
//!
//! No script answers from the data of a server that takes no writes. Most say so by their flags, by
//! which such a server refuses them before they run; an acquire ends with a write in any case. A list
//! is read without scripts, and asks whether the server is a replica.

mod break_lock;
mod client;
mod fields;
mod gateways;
mod health;
mod keys;
mod list;
mod queue;
mod records;
mod redlock;
mod replicated;
mod scripts;
mod slot;
mod store;

pub use client::{
    CredentialsError, PasswordError, RedisServers, check_credentials, check_quorum_credentials,
};
pub use redlock::RedlockStore;
#[doc(hidden)]
pub use scripts::inline_fields;
pub use slot::{Slot, SlotTags};
pub use store::RedisStore;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use redlock::fuzzed_quorum_reply;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use scripts::fuzzed_reply;
