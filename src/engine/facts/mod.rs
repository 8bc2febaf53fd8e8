//! Tells metrics, incidents, events and history of each grant, renewal and end of a lease, as one [`Fact`] that is made
//! in one place.
//!
//! The answers of requests are counted where the requests end. The audit log has its lines from the requests, too: they
//! name refused callers, and are on disk before the answer.

mod fact;
mod incidents;
mod tell;

pub(super) use fact::{Fact, ReleasedBy};
pub(super) use incidents::Incidents;
pub(super) use tell::{Facts, HINTS};
