//! The master that sentinels name: whom a gateway follows, and what becomes of what it was asked.

mod failover;
mod fake;
mod logins;
mod named;
mod observer;
mod process;
mod tls;
mod waiters;
pub(crate) mod watched;

pub(crate) use fake::{FakeSentinel, Says};
