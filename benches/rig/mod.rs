//! The programs under measurement, and the clients that measure them.

mod bare;
mod caller;
mod null_gateway;
mod plain;
mod programs;
mod settings;

pub(crate) use caller::Caller;
pub(crate) use plain::{Plain, WebdisCaller, WebdisScripts};
pub(crate) use programs::{Commands, Gateway, Program, RedisServer, Webdis, role};
pub(crate) use settings::{LONG, Settings, Subject, WAIT};
