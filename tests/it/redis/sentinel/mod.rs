//! The master that sentinels name: how a gateway follows it, and the outcome of its commands.

mod confirmed;
mod departed;
mod failover;
mod fake;
mod logins;
mod named;
pub(crate) mod observer;
mod outvoted;
pub(crate) mod process;
mod split;
pub(crate) mod watched;

pub(crate) use fake::{FakeSentinel, SentinelReply};
