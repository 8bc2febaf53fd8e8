//! The queue of one lock and its hand-off, over two gateways on one store, with exclusive and shared attempts.
//!
//! *What is modelled.* Attempts ask through a gateway of their own and stand in the queue that the store keeps. Every
//! script runs whole, in any order with all others: acquire, confirm, leave, give back, release, advance. A gateway
//! learns only from the answers of its own scripts and from messages, both of which may be lost. A lost answer is asked
//! for again, and an acquire that was sent again may come to the store once more at any later time. A message may be
//! late by any time, so that the grant in it is over. Callers hang up and waits run out at any instant, also between a
//! grant and its answer; a lease and a provisional grant may end at any instant; a gateway may die, or be taken for
//! dead although it lives. A caller that is answered a lease holds the lock from then on until it releases the lease or
//! the lease expires, which caller and store notice at one instant.
//!
//! *What must hold.* An exclusive holder is the only holder. Shared holders are never more than the last of them to be
//! granted the lock allows, and each has a slot of its own. No script leaves an attempt at the head of the queue to
//! which it could grant the lock. No attempt is granted the lock past a living attempt before it in the queue. A
//! gateway that has died costs the other attempts no more than one provisional grant. And when faults have ended and no
//! new caller comes, everything comes to rest by itself, and then no attempt waits and none holds the lock: no position
//! is forgotten, and no grant is left that no caller has heard of. The search checks this from every state that can be
//! reached, so it does not matter when the faults end.
//!
//! *What happens by itself* is everything but faults and new callers: messages arrive, holders release the lock, the
//! rounds and timers of living gateways run, the leases that a dead gateway has left end after their time. A lease
//! lasts its TTL only if its attempt has asked for it or confirmed it: a lease that one gateway hands over to another
//! must not last that long unconfirmed.
//!
//! *Rests.* In some of the searches each release comes before the minimum hold of its lease is over. The lease then
//! counts for all others until a step ends the rest, and its token is dead.
//!
//! *What is not modelled.* Idempotency keys and the positions that are kept with them (these are tried against a model
//! of their own in `conformance/waiting`), foreign clients, breaks, bounds of the queue, a Redis that loses its data,
//! and how long anything takes.

mod attempts;
mod cases;
mod model;
mod script;
mod state;
mod surroundings;
mod variant;
