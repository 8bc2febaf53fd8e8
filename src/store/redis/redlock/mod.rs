//! The Redlock store: one contract over a quorum of independent Redis servers.
//!
//! A lease is what a majority of the nodes agree on. Nobody keeps a queue for all gateways, so those who
//! wait are served in order at each gateway, and the gateways contend for the lock.

mod acquire;
mod agreed;
mod backoff;
mod break_lock;
mod calls;
mod claim;
mod combined;
mod confirm;
mod contender;
mod give_back;
mod health;
mod inspect;
mod learning;
mod list;
mod local_queue;
mod local_queues;
mod local_waiter;
mod node;
mod node_maker;
mod node_replies;
mod nonce;
mod pending_withdrawals;
mod quorum;
mod relay;
mod release;
mod release_tally;
mod renew;
mod replay;
mod scripts;
mod shared;
mod store;
mod sweeper;
mod tally;
mod try_guard;
mod validity;
mod view;
mod vote;
mod waiting;
mod walk;

pub use store::RedlockStore;
