//! The Redlock store: one contract over a quorum of independent Redis servers.
//!
//! A lease is what a majority of the nodes agree on. No server keeps a queue for all gateways: each gateway serves its
//! own waiters in order, and the gateways contend for the lock.
//!
//! Every node is an independent server. An attempt is made in *tries*, each with a nonce:
//!
//! 1. `reserve.lua` takes the lock where it is free, raises the fence counter and proposes its value as the fence. The
//!    answer names the node's *vote*, which changes in each life of its data and whenever another node has learnt from
//!    it. The highest proposal of a majority is the fence.
//! 2. `ratify.lua` has each of these nodes accept the fence, if the try still has the lock there, the counter has not
//!    passed it, and the vote has the same name. A majority must accept, with time left by the monotonic clock since
//!    before step 1.
//! 3. Otherwise `withdraw.lua` removes the try from every node that may have it, silent nodes included. A sweeper
//!    retries, and a tombstone refuses a reservation that arrives later.
//! 4. After the answer, the nodes that refused because of another try are asked again with the accepted fence, because
//!    a lease with a bare majority would end with the clock of one node.
//!
//! * A repeated request is answered with a lease only if a *majority* accepted that lease with the same fence.
//! * No call waits for the slowest node: after a majority, the other nodes get as long again as the majority took, at
//!   most 50 ms. "Refused" and "silent" are different votes. After a split vote each gateway pauses for a random,
//!   growing time.
//! * A renewal counts the nodes that still have the lease, and no node takes a lease again. A release, a break and the
//!   release of an undelivered lease count the nodes where the lease is gone; the sweeper does the rest.
//! * A release by a recipient that has lost the lease to another ends the lease at a node that missed the adoption. If
//!   a majority refuses the release, `restore.lua` makes such a node take the lease again, if an idempotency key makes
//!   the node remember its release.
//! * Waiters queue in memory at their gateway; one task per lock contends for the first waiter. So waiters are served
//!   in order within a gateway, and in no order between gateways. If `lg:{NAME}:wanted` exists, freeing the lock
//!   publishes `free NAME`; a try each second is the fallback.
//! * A list scans a majority of the nodes in turn and asks all nodes about each lock.
//! * A node that restarted, or was found without its data, does not vote for `redlock.max_ttl_ms`, because it may have
//!   forgotten a lease (unless `redlock.persistence` is `aof-always`, or `redlock.vote_at_once` is set).
//! * A node that lost its data must not propose a fence that it has accepted before, so it has no vote until it has
//!   learnt the largest fence. `learn.lua` begins a new *life* of its data. `teach.lua` asks every other node for its
//!   largest fence; a node with a vote also renames its vote, so that it accepts no fence that it proposed before. A
//!   majority of such nodes is enough. Otherwise all other nodes must answer, and nodes without a vote must answer
//!   twice with the same life. `admit.lua` stores the maximum, if the life that learns is still the same.

mod acquire;
mod agreement;
mod break_lock;
mod calls;
mod health;
mod history;
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
mod waiting;

pub use store::RedlockStore;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use record::fuzzed_quorum_reply;
