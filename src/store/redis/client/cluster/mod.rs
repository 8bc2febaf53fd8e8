//! Finds the master of a cluster that has a slot: asks the masters, and follows the answer with the latest epoch.
//!
//! Each master with slots is a `Shard` with connections, limits, sweeps and examinations of its own, so a master that
//! is unreachable does not affect the others: at most 256 callers that acquire or inspect wait for it, and 256 that
//! renew or release. A master without slots is disconnected like a deposed master. A server is used, and its view
//! believed, only if the server itself names the nodes that the gateway knows.
//!
//! Renew, release and confirm must work while a slot is being moved. They then name only the keys of the leases:
//! `:lock`, and for a shared lock its other three keys. Such a release sees no queue, so it hands the lock to no
//! waiter and leaves no letter: the periodic sweep hands the lock over once the slot is at rest. An adoption needs
//! the letters, so it waits until then.

mod layout;
mod members;
mod roster;
mod watch;

pub(crate) use members::Cluster;
pub(crate) use roster::BelievedRoster;
