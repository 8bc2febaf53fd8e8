//! What several tests need.

pub(crate) mod fake_gateway;
pub(crate) mod golden;
pub(crate) mod tree;
