//! Servers that disappear, move, refuse, lose data or are wrongly configured, and how a store notices.

pub(crate) mod clocks;
mod connections;
mod eviction;
pub(crate) mod examination;
mod history;
pub(crate) mod moved;
mod outages;
pub(crate) mod power_loss;
mod refusals;
mod silent;
