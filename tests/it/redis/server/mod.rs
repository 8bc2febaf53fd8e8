//! Servers that go, move, refuse, lose data or are not as they should be, and what a store finds out about them.

pub(crate) mod clocks;
mod connections;
mod eviction;
pub(crate) mod examination;
pub(crate) mod moved;
mod outages;
pub(crate) mod power_loss;
mod refusals;
mod silent;
