//! Which gateway a command calls, as whom, and for what.

pub(super) mod connection;
pub(super) mod environment;
pub(super) mod request;
