//! What several tests need.

pub(crate) mod golden;
pub(crate) mod tree;
