//! The Redis store against real servers.

pub(crate) mod cluster;
pub(crate) mod prelude;
mod replicas;
pub(crate) mod rig;
mod scripts;
pub(crate) mod sentinel;
pub(crate) mod server;
mod waiting;
