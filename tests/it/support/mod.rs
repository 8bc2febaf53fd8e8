<<<<<<< HEAD
<<<<<<< HEAD
//! What tests of every kind need.

mod deadline;
mod random;

pub(crate) use deadline::eventually;
pub(crate) use random::Random;
=======
//! What the tests stand on.

mod proxy;
mod redis_server;

pub(crate) use proxy::{Fault, Proxy};
pub(crate) use redis_server::RedisServer;
>>>>>>> redis
=======
//! What several tests need.

pub(crate) mod golden;
pub(crate) mod tree;
>>>>>>> cli
