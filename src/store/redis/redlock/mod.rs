//! The Redlock store: one contract over a quorum of independent Redis servers.
//!
//! A lease is what a majority of the nodes agree on. Nobody keeps a queue for all gateways, so those who
//! wait are served in order at each gateway, and the gateways contend for the lock.

mod acquire;
mod again;
mod agreed;
mod answers;
mod backoff;
mod break_lock;
mod calls;
mod claim;
mod combined;
mod confirm;
mod contender;
mod doomed;
mod give_back;
mod health;
mod inspect;
mod learning;
mod line;
mod lines;
mod list;
mod node;
mod node_maker;
mod nonce;
mod parted;
mod pending;
mod quorum;
mod relay;
mod release;
mod renew;
mod scripts;
mod shared;
mod standing;
mod store;
mod sweeper;
mod tally;
mod validity;
mod view;
mod vote;
mod waiting;
mod walk;

pub use store::RedlockStore;
