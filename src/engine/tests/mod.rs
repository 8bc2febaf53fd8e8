//! The engine over a store that answers what the test says, in paused time.

mod breaks;
mod groups;
mod hold;
mod late;
mod leases_needed;
mod release_requests;
pub(super) mod scripted_store;
mod sizes;
mod undelivered;
mod waiting;
