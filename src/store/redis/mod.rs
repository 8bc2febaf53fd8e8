//! The Redis store: one contract over a handful of scripts.
//!
//! No script answers from the data of a server that takes no writes. Most say so by their flags, by
//! which such a server refuses them before they run; an acquire ends with a write in any case. A list
//! is read without scripts, and asks whether the server is a replica.
//!
//! # What is stored
//!
//! The names of keys are a public interface: a client that uses `lg:{NAME}:lock` with `SET NX PX` and
//! compare-and-delete excludes callers of the gateway and is excluded by them. All keys of a name share its hash tag.
//! `TAG` is the shortest string over `0-9a-z` that hashes to the slot of the name, so there are at most 16,384
//! counters.
//!
//! | key | content | expires |
//! |---|---|---|
//! | `lg:{NAME}:lock` | The lease, or its rest, as one string (`records/`). A value that does not begin with `2` is foreign and is never overwritten. | with the lease |
//! | `lg:{NAME}:wait` | List of the waiters' ids (`2` and the hash of the token) in order. | 25 h; rounds extend it |
//! | `lg:{NAME}:of:ID` | The ticket of a waiter (`q` queued, `w` granted but not confirmed); later one letter: `g` given back, `a` adopted, `s` replaced, `n` taken out of the queue by a newer waiter, `r` released, with the time if another gateway had granted the lease, `b` broken; of a break `x` done, `y` not. | a minute after the wait or the end; half a minute after the granting gateway asks |
//! | `lg:{NAME}:gone` | In a queue of more than 512: how many waiters have left while their ids are still in the list. The ids are removed together once they are more than a quarter, because each removal searches the whole list. | as `wait` |
//! | `lg:{NAME}:shared`, `:leases`, `:slots` | Only while the lock is shared; `:lock` is then `2*`. A sorted set of ids by their ends, a hash of leases by their ids, a bitmap of the slots taken. | a minute after `:lock` |
//! | `lg:{NAME}:asked:ID` | The holder was asked to release this lease: after its end its token is told that it was broken. | a minute after that time |
//! | `lg:{NAME}:key:HASH` | What an idempotency key leads to: `q` and the id of a place, `l` and the id of a lease, or `n` and the id of a waiter that a newer waiter took out of the queue. | a minute after the end |
//! | `lg:{NAME}:order` | The highest order for which the lock was granted, the one before, and the lease (`records/order.rs`). | `limits.order_keep_ms` after the last grant with an order |
//! | `lg:{TAG}:orders` | Sorted set of the names in the slot that remember an order, by the ends of their records. | with the last of them |
//! | `lg:{NAME}:newest:HASH` | The id of the newest waiter with a key of `supersedes`; with the time of its arrival if earlier requests of its caller have waited. | 65 s after its wait |
//! | `lg:{}:history:N:WEEK`, in a cluster `lg:{TAG}:history:WEEK` | The history of many locks in one week (`history/`). | `history.keep_ms` and a week after the last record |
//! | `lg:{TAG}:gw:ID` | The gateway is alive, in a slot where it has waiters. | 6 s |
//! | `lg:{TAG}:fence` | The fence counter of the slot. | never |
//! | `lg:{}:marker`, `lg:{TAG}:marker` | Replication marker; the second one in a cluster. | 1 s |
//! | `lg:{TAG}:absent` | Never exists, and is named by every script that writes. While a slot moves, no server then has all named keys, and both refuse before anything happens. | |
//! | `lg:{NAME}:info`, `:ended`, `:wanted` | Nodes of a quorum: the record, the tombstones, "a gateway waits". There `:lock` is the plain hash of the token. | lease; a minute after the last end; 5 s |
//! | `lg:{}:node` | Nodes of a quorum: the life of the data, the run of the server, the largest fence known, how often other nodes learnt from it, when it was found empty. | never |
//!
//! Channels: `lg:gw:ID` of one gateway, `lg:gw:all` of all, `lg:events`; in database N the last two end in `:N`.
//! Messages: `granted TOKEN-HASH NAME FENCE`, `replaced TOKEN-HASH NAME`, `outdated TOKEN-HASH NAME`, `broken
//! TOKEN-HASH NAME`, `forgotten TOKEN-HASH NAME`, `ends MS NAME`, `free NAME`, `listening ID MS`, `come ID`. A gateway ignores messages that it does
//! not know.
//!
//! # Late copies
//!
//! After a lost reply the first copy of a command may still run, even after the caller's next command, so scripts
//! tolerate their own late copies:
//!
//! * Acquire, give-back, adoption and break leave a letter in `:of:ID`, and so does a release of a lease that has a key
//!   or that another gateway has granted. A letter is never replaced by an earlier one in the order g, n, a, s, r, b,
//!   and each letter refuses the acquire.
//! * A ticket records that its acquire was sent again. An attempt that leaves writes the letter although its ticket is
//!   not there, if the ticket may have been lost.
//! * A late release or confirmation of an ended lease does nothing. A late release of a lease that lives names the
//!   recipient that the lease had when the release came, so it does not end a lease that was answered again or adopted
//!   since.
//! * An adoption that its caller no longer waits for is given back like an attempt, and the letter refuses its late
//!   copies.
//! * A late renewal may extend a lease or change its stored TTL, which is safe. No renewal makes a lease end earlier.
//!
//! Every script takes the time from Redis and validates before its first write.

mod client;
mod fields;
mod gateways;
mod health;
mod history;
mod keys;
mod list;
mod queue;
mod records;
mod redlock;
mod replicated;
mod scripts;
mod slot;
mod store;

pub use client::{CredentialsError, PasswordError, check_credentials};
pub use redlock::RedlockStore;
#[doc(hidden)]
pub use scripts::inline_fields;
pub use slot::{Slot, SlotTags};
pub use store::RedisStore;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use redlock::fuzzed_quorum_reply;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use scripts::fuzzed_reply;
