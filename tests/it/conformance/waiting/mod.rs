//! Clauses 6 to 8: order, no wait for dead waiters, no lease without a caller. The cases use the engine, as callers do,
//! and all gateways that the fixture has on its store.

pub(super) mod broken;
pub(super) mod crowd;
pub(super) mod expiries;
pub(super) mod gateways;
pub(super) mod leaving;
pub(super) mod newest;
pub(super) mod order;
pub(super) mod orphans;
pub(super) mod places;
pub(super) mod queue;
pub(super) mod random;
pub(super) mod streams;

pub(crate) use gateways::{Caller, Gateways, LATE, new_key, request, sharing};
