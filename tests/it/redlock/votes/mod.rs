//! Which nodes have a vote, whose clock counts, and the fencing tokens that result.

pub(crate) mod clocks;
mod delayed;
mod fences;
pub(crate) mod learning;
mod majority;
mod power_loss;
