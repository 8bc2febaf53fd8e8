//! What several tests stand on.

mod deadline;
pub(crate) mod fake_gateway;
pub(crate) mod gateway;
pub(crate) mod golden;
pub(crate) mod program;
mod random;
pub(crate) mod tree;

pub(crate) use deadline::eventually;
pub(crate) use random::Random;
