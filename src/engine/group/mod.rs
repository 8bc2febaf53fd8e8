//! Groups: several locks that are acquired as one, all or none, with one token.
//!
//! The stores know nothing of groups. Each part is an ordinary lease, and the engine acquires one part after the
//! other.
//!
//! The engine acquires the names in sorted order under one token, each with a TTL of at most 10 s, and renews the
//! leases it has while it waits for the next name. All leases get their whole TTL just before the answer. If a part
//! is lost, all parts are released, and the next attempt has a new token: a released attempt is never granted again
//! under its token, and late copies of its commands may be on their way.
//!
//! One token therefore belongs to several leases, so the engine looks up every lease by token and name. A group waits
//! for one name at a time, so it has one position among the waiters of this gateway; the waiter ignores late news of
//! another name.
//!
//! **The last lock decides.** Only the last name has the idempotency key. Its lock is held only if all others are, so
//! a request that finds the lease of the last name has found the whole group; the other leases are renewed with the
//! token, which shows that they are alive. The reaper releases the other leases only once it has released the last
//! one. A request with a key first tries all names without waiting, the last name first. A group that is replaced
//! at its last name leaves the other leases to their short TTL, because the newer request may continue with them.
//!
//! The first name of the group is stored with the metadata of each lease under the empty name, which no metadata entry
//! of a caller has. So is a mark: the whole TTL and the next name of the group. The mark counts while the lease has the
//! short TTL that belongs to that whole TTL, so the last renewal removes it. An inspection follows the marks to the lock
//! that the group waits for (`awaited.rs`).

mod awaited;
mod collect;
mod collection;
mod request;

pub use awaited::AwaitedLock;
pub use request::{GrantedGroup, GroupAcquireError, GroupRequest};
