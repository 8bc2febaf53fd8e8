//! Which master of a cluster has a slot: the masters are asked, and the later word counts.
//!
//! Each master with slots is a `Shard` with connections, limits, rounds and examinations of its own, so a master that is away does
//! not affect the others: at most 256 callers wait for it, and 256 that renew or release. A master without slots is cut off like a
//! deposed master.
//!
//! Renew, release and confirm must work while a slot moves. They then name the keys of the leases and nothing else: `:lock`, and of
//! a shared lock its other three keys. Such a release sees no queue, so it hands the lock to nobody and leaves no letter: the rounds
//! hand the lock over when the slot is at rest. An adoption, which needs the letters, waits until then.

mod layout;
mod members;
mod watch;

pub(crate) use members::Cluster;
