//! The processes of a run: gateways, their store, and the proxies between them.

mod address;
mod clients;
mod cluster;
mod gateway;
mod kinds;
mod process;
mod proxy;
mod redis;
mod sentinel;
mod store;

pub(crate) use clients::Clients;
pub(crate) use gateway::{GRACE, Gateway, HISTORY_ENTRIES};
pub(crate) use kinds::Kind;
pub(crate) use proxy::{Harm, Proxy};
pub(crate) use redis::Redis;
pub(crate) use store::Rig;
