//! The quorum fence of Redlock, over nodes that do not know each other.
//!
//! *What is modelled.* An attempt asks every node (round one): a node on which the name is free takes the attempt's
//! nonce as owner, raises its counter and answers the counter. From any majority of answers the attempt takes the
//! largest, `t`, and asks every node to confirm it (round two): a node does so only if the owner is this nonce and its
//! counter is at most `t`, which becomes its counter. A majority of confirmations grants `t`. Every message may arrive
//! late, several times, or never, also long after its attempt is over; an answer may be lost. At any instant the
//! ownership of a name at a node may end (by expiry, release or break, which are the same to the node), a node may lose
//! all its data and continue, and other names may raise the counter that they share. No step checks how much time has
//! passed: no lease is valid for any time, so nothing here depends on a clock. A node that is asked again after the
//! grant, because it had refused, is a node that a message of round one reaches late.
//!
//! *What must hold.* Two grants of a name never have the same fence. A grant that was asked for after another grant has
//! a larger fence.
//!
//! *What a node that lost its data knows.* Nothing: no clock is part of the model, so the counters of other nodes may
//! be ahead of its own. The node has no vote until it has learnt the largest fence that other nodes have confirmed,
//! from a majority of nodes with a vote or else from all other nodes. A node that is asked for that fence no longer
//! confirms a fence that it was asked to propose for before; otherwise it might confirm a fence a moment later that the
//! learning node does not know. The answers count for the life of the node in which they were asked for: the node may
//! lose its data again meanwhile, or return to data that it once wrote down. Fewer than a majority of the nodes are
//! without a vote at a time for that reason; all may be at first. Without any of these rules a wrong state is found.
//!
//! *What is not modelled.* Renewals and leases themselves (`validity`), inspection, idempotency keys. Models with too
//! many nodes and attempts for a full search are walked through at random.

mod cases;
mod learning;
mod protocol;
mod state;
mod step;
