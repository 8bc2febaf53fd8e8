//! A cluster of real servers: which server a gateway asks, and locks whose slot moves.

mod down;
mod failover;
mod list;
mod motion;
pub(crate) mod pool;
mod redirects;
mod reshard;
pub(crate) mod servers;
mod sharing;
mod strangers;
