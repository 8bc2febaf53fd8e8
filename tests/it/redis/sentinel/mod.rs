//! The master that sentinels name: whom a gateway follows, and what becomes of what it was asked.

mod confirmed;
mod departed;
mod failover;
mod fake;
mod logins;
mod named;
pub(crate) mod observer;
pub(crate) mod process;
mod split;
pub(crate) mod watched;

pub(crate) use fake::{FakeSentinel, SentinelReply};
