//! The quorum fence of Redlock, over nodes that know nothing of each other.
//!
//! *What is modelled.* An attempt asks every node (round one): a node on which the name is free takes the
//! attempt's nonce as owner, raises its counter and answers it. From any majority of answers the attempt
//! takes the largest, `t`, and asks every node to confirm it (round two): a node does so only if the owner
//! is this nonce and its counter is at most `t`, which becomes its counter. A majority of confirmations
//! grants `t`. Every message may arrive late, again and again, or never, also long after its attempt is
//! over; an answer may be lost. At any instant what an owner has at a node may end (it expires, is
//! released, is broken: these are the same to the node), a node may lose all that it knows and go on,
//! and other names may raise the counter that they share. Nobody checks how long all that took: no lease
//! is valid for any time, so nothing here depends on a clock. A node that is asked again after the grant, because it had
//! refused, is one that a message of round one reaches late.
//!
//! *What must hold.* Two grants of a name never have the same fence, and one that was asked for after
//! another was granted has a larger one.
//!
//! *What a node that lost its data knows.* Nothing: no clock is part of the model, so that counters may be ahead
//! of any. It has no vote until it has learnt, from a majority that has a vote or else from all others, the
//! largest fence that any of them has confirmed. A node that is asked for that confirms nothing any more that it
//! was asked to propose for before; otherwise it might confirm a moment later what nobody has learnt then. What is
//! learnt counts for the life of the node in which it was asked for: it may lose its data again meanwhile, or have
//! again what it had written down once. Fewer than a majority are without a vote at a time for that reason; all
//! may be at first. Without any of these rules something wrong is found.
//!
//! *What is not modelled.* Renewals and leases themselves (`validity`), inspection, idempotency keys; more
//! nodes and attempts than can be come by, which are walked through at random.

mod cases;
mod learning;
mod protocol;
mod state;
mod step;
