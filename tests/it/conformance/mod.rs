//! What every store promises: one case per rule, one line per store.

mod attempts;
mod breaks;
mod embedded;
mod exclusion;
mod expiry;
mod fences;
mod fixture;
mod give_back;
mod groups;
mod idempotency;
mod keepers;
mod late;
mod list;
mod model;
mod prelude;
mod random;
mod redis;
mod redlock;
mod release;
mod renew;
mod requests;
mod sharing;
mod stores;
mod told;
mod waiting;

pub(crate) use fixture::Fixture;
