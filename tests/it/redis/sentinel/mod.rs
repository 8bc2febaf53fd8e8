//! The master that sentinels name: whom a gateway follows, and what becomes of what it was asked.

mod clocks;
mod confirmed;
mod departed;
mod failover;
mod fake;
mod logins;
mod named;
pub(crate) mod observer;
mod process;
mod slow;
mod split;
mod tls;
mod waiters;
pub(crate) mod watched;

pub(crate) use fake::{FakeSentinel, SentinelReply};
