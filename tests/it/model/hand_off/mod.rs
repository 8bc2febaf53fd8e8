//! The queue of one lock and its hand-off, over two gateways on one store, with those who want the lock alone and
//! those who share it.
//!
//! *What is modelled.* Attempts ask through a gateway of their own and stand in the queue that the store
//! keeps. Every script runs whole, in any order with all others: acquire, confirm, leave, give back,
//! release, advance. What a gateway knows comes to it by the answers of its own scripts and by messages,
//! both of which may be lost; a lost answer is asked for again, and an acquire that was sent again may
//! come to the store once more at any later time. A message may be late by any time, so that it tells of
//! a grant that is over. Callers hang up and waits run out at any instant, also between a grant and its
//! answer; a lease and a provisional grant may end at any instant; a gateway may die, or be taken for
//! dead although it lives. Where a lease is answered to a caller, that one holds the lock from then on
//! until it releases it or it expires, which both notice at one instant.
//!
//! *What must hold.* Whoever wants the lock alone is alone with it; of those who share it no more hold it than the
//! last to be granted it allows, and each has a place of its own. Nobody is left at the head of the queue who could be
//! granted the lock by the script that has just run. Nobody is granted it past somebody who stands before them in
//! the queue and lives. A gateway that has died costs the others no more than one provisional grant. And
//! when faults have ended and nobody new comes, everything comes to rest by itself, and then nobody waits
//! and nobody holds the lock: neither is a place forgotten nor a grant left that nobody heard of. This is
//! looked at from every state that can be reached, so it does not matter when the faults end.
//!
//! *What happens by itself* is everything but faults and new callers: what is sent arrives, whoever holds
//! the lock releases it, the rounds and timers of the gateways that live come, what a dead gateway has
//! left is over after its time. A lease lasts its TTL only if somebody has asked for it or confirmed it:
//! what is handed over to a gateway by another may not last that long unconfirmed.
//!
//! *What is not modelled.* Idempotency keys and the places that are kept with them (these are tried against a
//! model of their own in `conformance/waiting`), foreign clients, breaks, bounds of the queue, a Redis that
//! loses its data, and how long anything takes.

mod attempts;
mod cases;
mod model;
mod script;
mod state;
mod surroundings;
mod variant;
