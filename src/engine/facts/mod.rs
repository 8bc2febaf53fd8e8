//! What happens to locks and leases: made as a [`Fact`] in one place, and told once to metrics, events and history.
//!
//! The answers of requests are counted where the requests end. The audit log has its lines from the requests, too: they
//! name refused callers, and are on disk before the answer.

mod fact;
mod tell;

pub(super) use fact::{Fact, ReleasedBy};
pub(super) use tell::Facts;
