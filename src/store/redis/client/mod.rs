//! The way to the servers: connections, and what is sent on them.

mod connection;
mod driver;
mod endpoint;
mod pool;
mod resp;

pub(super) use connection::{Link, answered};
pub(super) use endpoint::Endpoint;
pub(super) use pool::Pool;
