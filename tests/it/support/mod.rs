//! What tests of every kind need.

mod deadline;
mod random;

pub(crate) use deadline::eventually;
pub(crate) use random::Random;
