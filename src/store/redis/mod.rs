//! The Redis store: one contract over a handful of scripts.
//!
//! No script answers from the data of a server that takes no writes. Most say so by their flags, by
//! which such a server refuses them before they run; an acquire ends with a write in any case. A list
//! is read without scripts, and asks whether the server is a replica.

mod admission;
mod break_lock;
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
mod link;
mod list;
mod look;
mod news_wanted;
mod permissions;
mod places;
mod pool;
mod reading;
mod relay;
mod replicas;
mod replicated;
mod rounds;
mod route;
mod scan;
mod scripts;
mod sentinels;
mod servers;
mod slot;
mod store;
mod subscription;
mod timers;
mod topology;
mod wake;

pub use credentials::{CredentialsError, PasswordError, check_credentials};
pub use servers::RedisServers;
pub use slot::{Slot, SlotTags};
pub use store::RedisStore;
