//! Tests of the engine over a store with scripted answers, in paused time.

mod breaks;
mod groups;
mod hold;
mod late;
mod leases_needed;
mod release_requests;
mod releases;
pub(super) mod scripted_store;
mod sizes;
mod undelivered;
mod waiting;
