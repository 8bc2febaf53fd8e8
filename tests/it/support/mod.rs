//! What several tests stand on.

mod authority;
mod caller;
mod deadline;
pub(crate) mod fake_gateway;
mod full;
pub(crate) mod gateway;
pub(crate) mod golden;
pub(crate) mod program;
mod proxy;
mod random;
mod redis_server;
pub(crate) mod tree;

pub(crate) use authority::{Authority, Files};
pub(crate) use caller::Caller;
pub(crate) use deadline::eventually;
pub(crate) use full::full;
pub(crate) use proxy::{Fault, Proxy};
pub(crate) use random::Random;
pub(crate) use redis_server::{RedisServer, cmd, free_port, url};
