//! What every benchmark stands on.

mod caller;
pub(crate) mod null_gateway;
mod servers;
mod setting;

pub(crate) use caller::Caller;
pub(crate) use servers::{Gateway, RedisServer};
pub(crate) use setting::setting;
