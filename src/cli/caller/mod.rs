//! The gateway that a command calls, its credentials, and the terms of its request.

pub(super) mod connection;
pub(super) mod environment;
pub(super) mod request;
