//! What the tests stand on.

mod proxy;
mod random;
mod redis_server;

pub(crate) use proxy::{Fault, Proxy};
pub(crate) use random::Random;
pub(crate) use redis_server::{RedisServer, cmd, url};
