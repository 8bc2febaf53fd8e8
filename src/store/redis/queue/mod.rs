//! The queues in Redis as this gateway sees them: its waiters, the news of scripts and messages, and timers.
//!
//! An attempt enters `Parking` *before* it is sent, because a message about it may overtake the reply. Its task then
//! sleeps until a message arrives (granted, granted provisionally, replaced, forgotten). It leaves the queue when its
//! wait runs out, when the caller hangs up, when the gateway drains, or when the API key is revoked. A grant that
//! arrives at this moment is answered, or is released if the caller has gone.
//!
//! **Hand-off.** The script that frees a lock grants it to the first live waiter (`hand_over.lua`). A waiter at the
//! same gateway gets its full TTL with the reply. For a waiter elsewhere the script publishes one message, and the
//! grant is *provisional*: it lasts 3 s unless the waiter's gateway confirms it, just before the answer
//! (`confirm.lua`). If no attempt waits there any more, that gateway releases the grant, but only the one with the
//! fence in the message, because the message may be late. If the turn of a kept position comes, its grant lasts for the
//! rest of the reconnect grace, until a newer request under its key collects it.
//!
//! **Shared locks.** The script goes on with the next waiter for as long as it may hold the lock beside the holders
//! (`admit` in `hand_over.lua`), at most 64 times.
//!
//! **Timers.** Redis reports no expiry that can be relied on. Each gateway keeps a timer for every lock that is waited
//! for there and asks when it fires (`advance.lua`). For a lease shorter than four seconds, the script that hands over
//! the lease or requests its release sends `ends` to the gateway of the next waiter, or to all gateways if that gateway
//! does not listen. A timer also removes a position that is kept for a reconnect (`lapse.lua`).
//!
//! **Rounds** are the fallback for everything else. Every two seconds a gateway renews its liveness key in each slot
//! where it has waiters (one command), reads each lock that is waited for (two commands per *name*), and looks up the
//! tickets of 512 waiters in turns. After a reconnect or a late round it looks up all. A waiter whose ticket is gone
//! asks again. A gateway that counts as dead in a slot learns of it from its next acquire or round there, and its
//! waiters ask again.
//!
//! **One key.** The newest request under an `Idempotency-Key` has the position; *newest* means latest at the store. An
//! older request is answered `replaced`. A request that takes a position over inherits its waiting time: the store
//! says since when the position is queued.

pub(super) mod gateway;
pub(super) mod rounds;
pub(super) mod timers;
