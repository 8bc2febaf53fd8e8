//! The Redlock store: one contract over a quorum of independent Redis servers.
//!
//! A lease is what a majority of the nodes agree on. Nobody keeps a queue for all gateways, so those who
//! wait are served in order at each gateway, and the gateways contend for the lock.

mod acquire;
mod backoff;
mod break_lock;
mod calls;
mod claim;
mod health;
mod learning;
mod list;
mod local_queue;
mod node;
mod quorum;
mod record;
mod relay;
mod release;
mod renew;
mod scripts;
mod shared;
mod store;
mod sweeper;
mod tally;
mod view;
mod vote;
mod waiting;
mod walk;

pub use store::RedlockStore;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use record::fuzzed_quorum_reply;
