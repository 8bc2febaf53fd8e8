//! Several locks that are taken as one: all or none, with one token.
//!
//! The stores know nothing of groups. Each part is an ordinary lease, and the engine takes one after the other.
//!
//! The engine takes the names in sorted order under one token, each with a TTL of at most 10 s, and renews what it has while it
//! waits for the next name. All leases get their whole TTL just before the answer. If a part is lost, all parts are released, and
//! the next attempt has a token of its own: a released attempt is never granted again under its token, and late copies of its
//! commands may be on their way.
//!
//! One token therefore belongs to several leases. Whatever is looked up by token here is looked up by name, too. A group waits for
//! one name at a time, so it has one place among the waiters of this gateway; late news of another name is not for it.
//!
//! **The last lock decides.** Only the last name has the idempotency key. It is held only if all others are, so a request that
//! finds its lease there has found the whole group; the others are renewed with the token, which shows that they are alive. The
//! reaper releases the others only once it has released that one. A request with a key first tries all names without waiting, the
//! last name first. A group that is superseded at its last name leaves the others to their short TTL, because the newer request
//! may go on with them.
//!
//! The names of the group are stored with the metadata of each lease under the empty name, which no entry of a caller has.

mod collect;
mod collection;
mod request;

pub use request::{GrantedGroup, GroupAcquireError, GroupRequest};
