//! Which nodes have a vote, by which clock, and what fences come of it.

pub(crate) mod clocks;
mod delayed;
mod fences;
pub(crate) mod learning;
mod majority;
mod power_loss;
