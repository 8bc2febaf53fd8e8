//! The history of locks: who held a lock, from when to when, and how that ended.
//!
//! Nothing of it is on the way of a request. The facts that operations tell (`listener.rs`) leave records in the memory
//! of the gateway (`recorder.rs`, `pending.rs`), which a task writes to the store, at most once a second for each lock. A
//! lease that has lasted `history.after_ms` has a record of its beginning, written by the gateway that granted it, and
//! one of its end, written by the gateway that ended it, or that saw it expire. Shorter leases are only counted. A reader
//! merges the records of a lease by its fencing token, and sorts leases by fencing token, because the clocks of gateways
//! differ (`entries.rs`).

mod entries;
mod fact;
mod listener;
mod pending;
mod recorder;

pub use fact::Actor;

pub(super) use fact::{RecordedLease, UnheardRelease, entry};
pub(super) use recorder::Recorder;
